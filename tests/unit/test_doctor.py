"""How the doctor's checks are made together, and how they are told."""

from trainbox.doctor import CHECKS, Case, run
from trainbox.doctor.finding import failure, note, ok, warning
from trainbox.doctor.words import as_data, lines

FOUND = {
    "first": lambda case: ok("all is well here"),
    "second": lambda case: [note("worth knowing"), warning("may fail\nlater", "mend it")],
    "third": lambda case: [failure("does not start", "sudo start")],
    "fourth": lambda case: ok("nothing to see"),
}


def told(**how):
    return lines(run(Case(), FOUND), **{"verbose": False, "colours": False} | how)


def test_what_is_wrong_is_told_with_its_remedy():
    """What is in order by name alone, and a verdict at the end."""
    assert told() == [
        "note     second: worth knowing",
        "warning  second: may fail later",
        "         → mend it",
        "FAILURE  third: does not start",
        "         → sudo start",
        "ok       first, fourth",
        "4 checks: 1 failure, 1 warning, 1 note",
    ]


def test_verbose_tells_of_every_check():
    """In the order in which they are made."""
    assert [line for line in told(verbose=True) if line.startswith("ok")] == [
        "ok       first: all is well here",
        "ok       fourth: nothing to see",
    ]


def test_colours_are_in_the_first_word_alone():
    """Whoever cannot show them gets none."""
    assert told(colours=True)[3] == "\x1b[1;31mFAILURE\x1b[0m  third: does not start"
    assert not any("\x1b" in line for line in told())


def test_all_is_well():
    """Said so."""
    assert lines(run(Case(), {"first": FOUND["first"]}), verbose=False, colours=False) == [
        "ok       first",
        "1 check: all is well",
    ]


def test_as_data():
    """The verdict is the worst that was found, a remedy that there is none null."""
    data = as_data(run(Case(), FOUND))
    assert data["verdict"] == "failure"
    assert data["checks"][1] == {
        "check": "second",
        "severity": "warning",
        "findings": [
            {"severity": "note", "message": "worth knowing", "remedy": None},
            {"severity": "warning", "message": "may fail\nlater", "remedy": "mend it"},
        ],
    }


def test_a_check_that_fails_itself_keeps_no_other_from_being_made():
    """It is a warning of its own."""
    first, second = run(Case(), {"broken": lambda case: [1 / 0], "first": FOUND["first"]})
    assert [(one.severity, one.message) for one in first.findings] == [
        ("warning", "the check itself failed: ZeroDivisionError: division by zero")
    ]
    assert second.severity == "ok"


def test_a_run_on_the_cpu_has_no_check_of_gpus():
    """With --device cpu the driver is left alone, and folders and versions are not."""
    assert [check.name for check in run(Case(device="cpu"))] == [
        "limits",
        "folders",
        "foreign packages",
        ".env",
        "versions",
    ]
    assert len(CHECKS) == 19
