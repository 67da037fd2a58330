from flows.runs.identity import canonical, differences


def test_equal_documents_are_equal_bytes() -> None:
    assert canonical({"b": 1, "a": {"d": "é", "c": 2}}) == canonical(
        {"a": {"c": 2, "d": "é"}, "b": 1}
    )


def test_changed_settings_are_named_by_their_dotted_place() -> None:
    old = {"rules": {"luhn": "reject", "cvv": "warn"}, "portal": {"armor": False}}
    new = {"rules": {"luhn": "warn", "cvv": "warn"}, "portal": {}}

    assert differences(old, new) == ["portal.armor", "rules.luhn"]
