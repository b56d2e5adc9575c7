"""Memory that a process keeps for the next step, counted in pages that the system had to fill; glibc is real."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import resource, sys
from nfold.machine.heap import keep_freed
if sys.argv[1] == "keep":
    keep_freed()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    blocks = [b"x" * 2_000_000 for _ in range(10)]
    del blocks

step()
step()
before = faults()
for _ in range(10):
    step()
print(faults() - before)
"""
PAGES = 10 * 10 * 2_000_000 // 4096
"""Of all steps."""


def filled(how: str, **variables: str) -> int:
    ours = {key: value for key, value in os.environ.items() if "MALLOC" not in key and key != "GLIBC_TUNABLES"}
    environment = ours | variables
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], env=environment, capture_output=True, check=True)
    return int(done.stdout)


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
pytestmark = [
    pytest.mark.skipif(not Path("/lib64/ld-linux-x86-64.so.2").exists(), reason="the allocator is not glibc's"),
    pytest.mark.skipif(
        HUGE_PAGES.exists() and "[always]" in HUGE_PAGES.read_text(), reason="pages are filled 512 at a time"
    ),
]


def test_freed_memory_stays_with_the_process():
    assert filled("keep") < PAGES / 20
    assert filled("leave") > PAGES / 2, "what the test is about: by default it is given back"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "100000"),
        ("MALLOC_MMAP_THRESHOLD_", "100000"),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=100000"),
    ],
)
def test_who_has_set_the_allocator_up_keeps_that(name, value):
    assert filled("keep", **{name: value}) > PAGES / 2


ARENAS = """
import ctypes, re, sys, threading
from nfold.machine.heap import share_heap
if sys.argv[1] == "share":
    share_heap()

def work():
    blocks = [ctypes.create_string_buffer(5000) for _ in range(100)]
    all_here.wait()

all_here = threading.Barrier(5)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
all_here.wait()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
told = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, told)
libc.fclose(told)
"""


def heaps(how: str, folder: Path, **variables: str) -> int:
    """Return from how many heaps of the allocator five threads take memory at once."""
    ours = {key: value for key, value in os.environ.items() if "MALLOC" not in key and key != "GLIBC_TUNABLES"}
    told = folder / "told.xml"
    subprocess.run([sys.executable, "-c", ARENAS, how, str(told)], env=ours | variables, check=True)
    return told.read_text().count("<heap nr=")


def test_threads_of_a_command_take_memory_from_one_heap(tmp_path):
    assert heaps("leave", tmp_path) > 1, "what the test is about: by default each has one of its own"
    assert heaps("share", tmp_path) == 1
    assert heaps("share", tmp_path, MALLOC_ARENA_MAX="8") > 1, "who has set the allocator up keeps that"


def test_what_is_kept_for_good_is_looked_through_no_more():
    script = (
        "import gc, nfold.machine.heap as heap\n"
        "circle = []; circle.append(circle); del circle\n"
        "heap.keep_for_good()\n"
        "print(gc.collect(), gc.get_freeze_count() > 1000, len(gc.get_objects()) < gc.get_freeze_count())"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout
    assert told.split() == ["0", "True", "True"]
