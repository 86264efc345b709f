"""Runs leave nothing behind: 200 decodes in one process stay at the memory of the first ones."""

import gc

import pytest

from tests.decoding.reference import encode, run
from tests.tiny import PROMPTS, tiny_pair


def resident_kb() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@pytest.mark.slow
def test_200_decodes_leave_memory_where_it_was_after_ten():
    target, draft = tiny_pair("llama")
    ids = encode(target, PROMPTS[2])
    names = ("autoregressive", "constant", "dynamic", "heuristic", "oracle", "prompt-lookup", "early-exit")
    sizes = []
    for index in range(200):
        run(ids, target, draft, 64, name=names[index % len(names)])
        gc.collect()
        sizes.append(resident_kb())
    print(f"resident after 10: {sizes[9]} kB, after 200: {sizes[-1]} kB")
    assert sizes[-1] <= 1.05 * sizes[9]
