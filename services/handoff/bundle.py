"""Named tensors to bytes and back."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from services.handoff import layout
from services.handoff.layout import TensorSpec

_NAMES = {getattr(torch, name): name for name in layout.ITEM_BYTES if hasattr(torch, name)}


class Described(NamedTuple):
    """specs, and per spec the tensor as flat uint8 on its own device."""

    specs: tuple[TensorSpec, ...]
    flat: list[torch.Tensor]


def describe(bundle: Mapping[str, torch.Tensor], *, cuda: bool) -> Described:
    """cuda: whether there is a CUDA region; without one, CUDA tensors travel through DRAM. Raises TypeError or
    ValueError, naming the tensor, for what cannot travel."""
    if not bundle:
        raise ValueError("an empty bundle: publish at least one tensor")
    specs, flat = [], []
    for name, tensor in bundle.items():
        dtype = _NAMES.get(tensor.dtype)
        if dtype is None or tensor.layout is not torch.strided or tensor.device.type not in ("cpu", "cuda"):
            raise TypeError(
                f"{name}: {tensor.dtype}, {tensor.layout}, on {tensor.device} cannot travel; send a dense tensor on "
                f"the CPU or a CUDA device, of a dtype among {', '.join(layout.ITEM_BYTES)}"
            )
        specs.append(TensorSpec(name, dtype, tuple(tensor.shape), int(tensor.is_cuda and cuda)))
        flat.append(_plain(tensor).reshape(-1).view(torch.uint8))
    return Described(tuple(specs), flat)


def rebuild(specs: Sequence[TensorSpec], views: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors over the bytes of the regions, without a copy. views: uint8, one a region, header included."""
    places, _ = layout.offsets(specs, len(views))
    return {
        spec.name: views[spec.region][place : place + spec.length].view(getattr(torch, spec.dtype)).reshape(spec.shape)
        for spec, place in zip(specs, places, strict=True)
    }


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.contiguous()
