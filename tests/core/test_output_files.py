"""Output replaces only what earlier output wrote: files of the user are left alone."""

import json

import pytest

import robustassay as ra
from robustassay.cli import main
from robustassay.errors import BadRequest
from robustassay.output_files import write_output

LIST = ".list.json"


def test_only_files_of_an_earlier_output_are_replaced_and_removed(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    write_output(tmp_path, [("a/one", "1"), ("two", "2")], LIST)
    write_output(tmp_path, [("two", "3")], LIST)
    assert (tmp_path / "two").read_text() == "3"
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    (tmp_path / "three").write_text("mine")
    with pytest.raises(BadRequest, match=r"holds three, which this command did not write: choose another folder"):
        write_output(tmp_path, [("two", "4"), ("three", "3")], LIST)
    assert (tmp_path / "two").read_text() == "3", "nothing is written where something is refused"
    assert (tmp_path / "three").read_text() == "mine"


@pytest.mark.parametrize(("command", "file"), [(["report"], "index.html"), (["leaderboard", "build"], "board.csv")])
def test_a_report_and_a_board_leave_files_of_the_user_alone(tmp_path, capsys, command, file):
    ra.evaluate("resnet20-natural", "cifar10-1k", ra.LInf(8 / 255), "fgsm", limit=2, out=tmp_path / "run")
    out = tmp_path / "out"
    out.mkdir()
    (out / file).write_text("mine")
    request = [*command, str(tmp_path / "run"), "-o", str(out)]
    assert main(request) == 2
    assert f"holds {file}, which this command did not write" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in out.iterdir()] == [file]
    (out / file).rename(out / "notes.txt")
    assert main(request) == main(request) == 0
    assert (out / "notes.txt").read_text() == "mine"


def test_a_board_of_a_version_without_lists_is_replaced(tmp_path):
    ra.evaluate("resnet20-natural", "cifar10-1k", ra.LInf(8 / 255), "fgsm", limit=2, out=tmp_path / "run")
    request = ["leaderboard", "build", str(tmp_path / "run"), "-o", str(tmp_path / "out")]
    assert main(request) == 0
    (tmp_path / "out" / ".assay-board.json").unlink()
    assert main(request) == 0


def test_a_link_of_the_user_is_not_replaced(tmp_path):
    (tmp_path / "index.html").symlink_to("nowhere")
    with pytest.raises(BadRequest, match=r"index\.html"):
        write_output(tmp_path, [("index.html", "")], LIST)


def test_files_of_a_command_that_was_killed_are_still_known_as_its_own(tmp_path):
    def killed():
        yield "one", "1"
        yield "two", "2"

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("robustassay.output_files._remove", die)
        write_output(tmp_path, [("old", "")], LIST)
        with pytest.raises(KeyboardInterrupt):
            write_output(tmp_path, killed(), LIST)
    write_output(tmp_path, [("one", "3")], LIST)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LIST, "one"]


@pytest.mark.parametrize("held", [["../mine"], ["/mine"], "mine", [7], {"a": 1}, None])
def test_a_list_that_somebody_wrote_removes_nothing_outside_the_folder(tmp_path, held):
    (tmp_path / "mine").write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / LIST).write_text(json.dumps({"files": held}))
    write_output(out, [("one", "1")], LIST)
    assert (tmp_path / "mine").exists()


def test_a_file_in_the_place_of_a_folder_is_a_sentence(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(BadRequest, match="is a file where a folder is needed"):
        write_output(tmp_path / "out", [("one", "1")], LIST)


def test_a_list_that_somebody_wrote_removes_nothing_behind_a_linked_folder(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    out = tmp_path / "out"
    out.mkdir()
    (out / "sub").symlink_to(tmp_path / "mine")
    (out / LIST).write_text(json.dumps({"files": ["sub/thesis.tex", "."]}))
    write_output(out, [("one", "1")], LIST)
    assert (tmp_path / "mine" / "thesis.tex").exists()
