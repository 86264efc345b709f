"""How many cores are computed with: those of the container, and one alone for small models."""

from __future__ import annotations

import os

import torch

from specviz.models import cores
from specviz.models.cores import share_cores
from tests import tiny


def test_threads_stay_within_the_container(monkeypatch, tmp_path):
    files = {"/sys/fs/cgroup/cpu.max": "150000 100000\n"}
    monkeypatch.setattr(cores.Path, "read_text", lambda self: files[str(self)])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert cores.usable_cores() == 2
    files["/sys/fs/cgroup/cpu.max"] = "max 100000\n"
    assert cores.usable_cores() == 8


def test_small_models_leave_the_other_cores_alone(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    try:
        share_cores(tiny.tiny_model("llama"), None)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_number_of_threads_that_was_set_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    before = torch.get_num_threads()
    share_cores(tiny.tiny_model("llama"), None)
    assert torch.get_num_threads() == before
