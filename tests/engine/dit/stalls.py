"""Counts what would make a CUDA host wait, on a machine without CUDA."""

from collections import Counter
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::is_nonzero", "aten::equal"}
INDEXED = {"aten::index.Tensor", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put"}
BUILT = {torch.tensor, torch.as_tensor, torch.from_numpy}


class _Calls(TorchFunctionMode):
    def __init__(self, counted: Counter[str]) -> None:
        super().__init__()
        self._counted = counted

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # A factory that is told no device builds on the host, and what it built must be copied over.
        on_host = func in BUILT or (func is torch.arange and "device" not in (kwargs or {}))
        if on_host:
            self._counted["host_tensor"] += 1
        return func(*args, **(kwargs or {}))


class Stalls(TorchDispatchMode):
    """While it is entered, `counted` grows: scalar reads, `nonzero`, masked indexing, tensors built on the host.

    Where there is a CUDA device, a real wait raises as well.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()
        self._calls = _Calls(self.counted)

    def __enter__(self) -> "Stalls":
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("error")
        self._calls.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._calls.__exit__(*error)
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("default")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        overload = func._schema.overload_name
        if name in READS:
            self.counted[name.removeprefix("aten::")] += 1
        full = f"{name}.{overload}" if overload else name
        if (full in INDEXED or name in INDEXED) and _is_masked(args[1]):
            self.counted["masked_index"] += 1
        return func(*args, **(kwargs or {}))


def _is_masked(indices: Any) -> bool:
    return any(isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) for index in indices)
