from flows.runs.identity import canonical, differences


def test_equal_documents_are_equal_bytes() -> None:
    assert canonical({"b": 1, "a": {"d": "é", "c": 2}}) == canonical(
        {"a": {"c": 2, "d": "é"}, "b": 1}
    )


def test_changed_settings_are_named_by_their_dotted_place() -> None:
    old = {"rules": {"luhn": "reject", "cvv": "warn"}, "portal": {"armor": False}}
    new = {"rules": {"luhn": "warn", "cvv": "warn"}, "portal": {}}

    assert differences(old, new) == ["portal.armor", "rules.luhn"]


def test_settings_that_only_prove_an_extract_whole_make_no_other_run() -> None:
    old = {"source": {"delimiter": ",", "final_newline": False}}
    new = {"source": {"delimiter": ";"}}

    assert differences(old, new) == ["source.delimiter"]
