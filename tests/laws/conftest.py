"""Small tensors need one thread: a second only waits, and for long where other programs run too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# laws that do not hold yet, each a piece of open work; whoever mends one takes its line out
OPEN = {
    "test_an_offender_in_the_middle_is_refused_by_name[std_mean]": "a pair of outputs is checked too strictly",
    "test_an_offender_in_the_middle_is_refused_by_name[native_batch_norm]": "refused under its functional name",
    "test_an_offender_in_the_middle_is_refused_by_name[hardshrink]": "refused under the name of its parts",
    "test_all_offenders_are_listed_at_once_with_their_modules": "an offender behind another is named by its product",
    "test_an_offender_beside_the_wanted_submodule_is_no_offence": "what until= does not need is read all the same",
    "test_a_model_that_mixes_points_is_refused[einsum batches apart-asleep]": "seen only where units are awake",
    "test_a_model_that_mixes_points_is_refused[x * ones(n).sum()-asleep]": "seen only where units are awake",
    "test_a_sample_brings_its_operator_to_its_rule[chunk-0]": "torch takes it apart before we see it",
    "test_a_sample_brings_its_operator_to_its_rule[tensor_split-0]": "torch takes it apart before we see it",
    "test_ties_make_neither_more_breaks_nor_fewer[addmv-0]": "a batch of vectors of length one",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Open laws are expected to fail; a sample without an operator counts as open too."""
    for item in items:
        reason = OPEN.get(item.name) or ("there is no such rule" if "native_dropout" in item.name else None)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
