"""Settings in effect: each with where it comes from, and no secret among them."""

from __future__ import annotations

from schemas.settings_in_effect import settings_in_effect

EFFECTIVE = {"root": "store", "test": False, "limits": {"rate": 0.1, "jump": 0.5}, "columns": {}}


def test_every_setting_says_whether_the_file_or_a_default_gave_it() -> None:
    found = settings_in_effect(EFFECTIVE, {"root": "store", "limits": {"rate": 0.1}}, {})

    origins = {name: one["from"] for name, one in found.items()}
    assert {
        "root": "file",
        "test": "default",
        "limits.rate": "file",
        "limits.jump": "default",
        "columns": "default",
    } == origins


def test_of_the_environment_paths_and_regions_are_told_and_secrets_only_named() -> None:
    environment = {
        "CARDLINK_PASSPHRASE_FILE": "/run/secrets/p",
        "AWS_REGION": "eu-central-1",
        "AWS_SECRET_ACCESS_KEY": "very-secret",
        "AWS_ENDPOINT_URL": "https://user:very-secret@s3.example/very-secret?k=very-secret",
        "CARDLINK_ALERT_WEBHOOK_URL": "https://hooks.example/very-secret",
        "CARDLINK_ANYTHING": "very-secret",
        "HOME": "/root",
    }

    found = settings_in_effect({}, {}, environment)

    assert "very-secret" not in repr(found)
    assert {
        "CARDLINK_PASSPHRASE_FILE": "/run/secrets/p",
        "AWS_REGION": "eu-central-1",
        "AWS_SECRET_ACCESS_KEY": "(set)",
        "AWS_ENDPOINT_URL": "https://s3.example",
        "CARDLINK_ALERT_WEBHOOK_URL": "https://hooks.example",
        "CARDLINK_ANYTHING": "(set)",
    } == {name: one["value"] for name, one in found.items()}
