"""Which passes share a forward."""

import torch

from services.omni.glm_pipeline_passes import DenoiseInputs, group_passes, take_rows


def request(text: int, negative: int | None = 1, cache: object = None) -> DenoiseInputs:
    return DenoiseInputs(
        text=torch.zeros(1, text, 4),
        negative_text=None if negative is None else torch.zeros(1, negative, 4),
        prior=torch.zeros(1, 4, dtype=torch.long),
        target_size=torch.zeros(1, 2),
        crop=torch.zeros(1, 2),
        guidance=1.5,
        previews=frozenset(),
        kv_cache=cache,
    )


def groups(*batch: DenoiseInputs, join: bool = False) -> list[list[tuple[int, bool]]]:
    return [[(each.row, each.conditional) for each in group] for group in group_passes(batch, join_guidance=join)]


def test_one_request_is_two_forwards_or_one() -> None:
    assert groups(request(1)) == [[(0, True)], [(0, False)]]
    assert groups(request(1), join=True) == [[(0, True), (0, False)]]


def test_no_guidance_is_one_pass() -> None:
    assert groups(request(1, negative=None)) == [[(0, True)]]


def test_texts_of_another_length_go_apart() -> None:
    assert groups(request(1), request(7), request(1)) == [
        [(0, True), (2, True)],
        [(1, True)],
        [(0, False), (1, False), (2, False)],
    ]


def test_conditional_passes_come_first_in_a_joined_forward() -> None:
    assert groups(request(1), request(1), join=True) == [[(0, True), (1, True), (0, False), (1, False)]]


def test_a_condition_image_is_read_by_its_own_conditional_pass_only() -> None:
    first, second = object(), object()
    batch = [request(1, cache=first), request(1, cache=second), request(1)]
    found = group_passes(batch, join_guidance=True)
    assert [[(each.row, each.conditional) for each in group] for group in found] == [
        [(0, True)],
        [(1, True)],
        [(2, True), (0, False), (1, False), (2, False)],
    ]
    assert [group[0].kv_cache for group in found] == [first, second, None]


def test_rows_are_taken_in_order() -> None:
    values = [torch.full((1, 2), float(row)) for row in range(3)]
    assert take_rows(values, [2]) is values[2]
    assert take_rows(values, [2, 0]).tolist() == [[2.0, 2.0], [0.0, 0.0]]
