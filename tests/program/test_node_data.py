"""What lives on a node: files below a folder or of an index, or what a function says; checked when it is built."""

import os

import pytest

import nfold
from nfold.errors import ProgramError
from nfold.node_data import LocalFiles, on_node


def read(path):
    return path.read_text(), path.name


def files_in(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def test_each_file_below_a_folder_is_a_sample_in_the_order_of_paths(tmp_path):
    folder = files_in(tmp_path, "b.txt", "a/2.txt", "a/1.txt", ".hidden", ".cache/x.txt")
    data = nfold.local_data(folder, read=read)()
    assert data.names == ["a/1.txt", "a/2.txt", "b.txt"]
    assert [data[index] for index in range(len(data))] == [
        ("a/1.txt", "1.txt"),
        ("a/2.txt", "2.txt"),
        ("b.txt", "b.txt"),
    ]
    assert data.size(0) == len("a/1.txt")


def test_each_line_of_an_index_names_one(tmp_path):
    files_in(tmp_path, "b.txt", "a/1.txt", "not-named.txt")
    (tmp_path / "index.txt").write_text("b.txt\n\n./a/1.txt\n")
    assert nfold.local_data(str(tmp_path / "index.txt"), read=read)().names == ["b.txt", "a/1.txt"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("b.txt", r"line 2, names 'b\.txt', as line 1 does"),
        ("../b.txt", r"line 2, names '\.\./b\.txt', which does not lie below"),
        ("/b.txt", "which does not lie below"),
        ("c.txt", r"c\.txt cannot be read: No such file"),
        ("a", "a is no file"),
    ],
)
def test_an_index_that_names_what_cannot_be_a_sample_is_refused(tmp_path, line, said):
    files_in(tmp_path, "b.txt", "a/1.txt")
    (tmp_path / "index.txt").write_text(f"b.txt\n{line}\n")
    with pytest.raises(ProgramError, match=said):
        nfold.local_data(tmp_path / "index.txt", read=read)()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with on_node("pi1"), pytest.raises(ProgramError, match=r"nowhere, which .* of pi1, is neither a folder nor a file"):
        nfold.local_data(tmp_path / "nowhere", read=read)()


def test_a_function_is_asked_for_each_node(tmp_path):
    files_in(tmp_path / "pi1", "1.txt")
    data = nfold.local_data(lambda node: {"pi1": tmp_path / "pi1", "pi2": ["item"]}.get(node), read=read)
    with on_node("pi1"):
        assert isinstance(data(), LocalFiles)
    with on_node("pi2"):
        assert data() == ["item"]
    assert len(data()) == 0


def test_a_node_without_any_can_read_files_that_come_to_it(tmp_path):
    path = files_in(tmp_path, "1.txt") / "1.txt"
    (tmp_path / "empty").mkdir()
    for nothing in (None, tmp_path / "empty"):
        found = nfold.local_data(lambda _, nothing=nothing: nothing, read=read)()
        assert (len(found), found.read(path)) == (0, ("1.txt", "1.txt"))
    assert nfold.local_data(lambda _: None)() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (lambda: nfold.local_data(3, read=read), r"nfold\.local_data\(3\): give a folder"),
        (lambda: nfold.local_data("folder"), "give a function that makes an item"),
        (lambda: nfold.local_data("folder", read="x"), "read='x'"),
        (lambda: nfold.local_data("folder", read=read, pinned=-1), "pinned=-1"),
        (lambda: nfold.local_data("folder", read=read, pinned=0.5), r"pinned=0\.5"),
        (lambda: nfold.local_data(lambda node: "folder")(), "the function names folder"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, said):
    with pytest.raises(ProgramError, match=said):
        arguments()


def test_pinned_samples_are_no_more_than_there_are():
    def pinned(value):
        return nfold.local_data("folder", read=read, pinned=value).num_pinned(10)

    assert [pinned(True), pinned(False), pinned(4), pinned(40)] == [10, 0, 4, 10]


def test_a_file_that_changes_after_it_was_listed_is_found(tmp_path):
    data = nfold.local_data(files_in(tmp_path, "1.txt", "2.txt"), read=read)()
    data.check(0)
    os.utime(tmp_path / "1.txt", ns=(0, 0))
    (tmp_path / "2.txt").unlink()
    for index, said in enumerate(("was written to after", "cannot be read")):
        with pytest.raises(ProgramError, match=rf"{index + 1}\.txt {said}"):
            data.check(index)
