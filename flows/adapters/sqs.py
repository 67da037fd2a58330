"""A queue of SQS: messages that stay hidden while they are held, and come again if nobody deletes
them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import boto3
from botocore import exceptions as boto
from botocore.config import Config
from urllib3.exceptions import HTTPError

from flows.errors import OperatorError, TryAgainError
from flows.runs.read_once import read_once

LONG_POLL: Final = 20  # seconds that SQS waits for a message, the longest there is
HIDDEN: Final = 120  # seconds that a message is hidden from others, unless it is held longer
BATCH: Final = 10  # messages of one request, the most there are
# what nobody but an operator can put right, by the code of SQS
REASONS: Final = {
    "AWS.SimpleQueueService.NonExistentQueue": "there is no such queue",
    "QueueDoesNotExist": "there is no such queue",
    "InvalidAddress": "it is not the address of a queue in this region",
    "AccessDenied": "the role may not use it (deploy/iam-arrivals-policy.json)",
    "AccessDeniedException": "the role may not use it (deploy/iam-arrivals-policy.json)",
    "KMS.AccessDeniedException": "the role may not use the key that it is encrypted with",
    "InvalidClientTokenId": "the credentials are not valid",
    "UnrecognizedClientException": "the credentials are not valid",
    "SignatureDoesNotMatch": "the credentials are not valid",
    "ExpiredToken": "the credentials have expired",
}
CREDENTIALS: Final = (boto.NoCredentialsError, boto.PartialCredentialsError)
REGION: Final = re.compile(r"^https?://sqs\.(?P<region>[a-z0-9-]+)\.")
FOREIGN: Final = (boto.BotoCoreError, boto.ClientError, HTTPError, OSError)


class QueueUnusableError(OperatorError):
    """The queue of arrivals is missing, or refuses us."""

    message = "The queue {queue} cannot be used: {reason}."
    next_step = (
        "Correct [arrivals] queue, or the rights; meanwhile the hourly schedules take what comes."
    )


class QueueBusyError(TryAgainError):
    """The queue of arrivals does not respond."""

    message = "The queue {queue} does not respond ({code})."
    next_step = "Run {same_command} again later; meanwhile the hourly schedules take what comes."


class QueueMessage(NamedTuple):
    """A message, and the handle by which it is held and deleted."""

    body: str
    handle: str


class SqsQueue:
    """One queue by its URL; QueueUnusableError and QueueBusyError from each method.

    Each call is one attempt within half a minute. Thread-safe, as boto3's clients are.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    @read_once
    def _client(self) -> Any:
        region = REGION.match(self.url)
        config = Config(
            connect_timeout=5,
            read_timeout=LONG_POLL + 10,
            retries={"total_max_attempts": 1, "mode": "standard"},
        )
        named = {"region_name": region["region"]} if region else {}
        return boto3.session.Session(**named).client("sqs", config=config)

    def receive(self) -> list[QueueMessage]:
        """Wait up to LONG_POLL seconds for messages; they are hidden for HIDDEN seconds."""
        answer = self._ask(
            "receive_message",
            MaxNumberOfMessages=BATCH,
            WaitTimeSeconds=LONG_POLL,
            VisibilityTimeout=HIDDEN,
        )
        return [
            QueueMessage(message["Body"], message["ReceiptHandle"])
            for message in answer.get("Messages", ())
        ]

    def hold(self, handles: Sequence[str], seconds: int = HIDDEN) -> None:
        """Hide messages for so long from now; with 0 they come again at once."""
        for batch in _batches(handles):
            entries = [{**entry, "VisibilityTimeout": seconds} for entry in batch]
            self._ask("change_message_visibility_batch", Entries=entries)

    def delete(self, handles: Sequence[str]) -> None:
        """Delete messages."""
        for batch in _batches(handles):
            self._ask("delete_message_batch", Entries=batch)

    def length(self) -> int:
        """Return about how many messages wait and are not hidden."""
        name = "ApproximateNumberOfMessages"
        answer = self._ask("get_queue_attributes", AttributeNames=[name])
        return int(answer["Attributes"][name])

    def _ask(self, method: str, **request: Any) -> Any:
        try:
            return getattr(self._client, method)(QueueUrl=self.url, **request)
        except FOREIGN as error:
            problem = _translated(self.url, error)
        self.__dict__.pop("_client", None)  # a new one finds what was renewed meanwhile
        raise problem


def _batches(handles: Sequence[str]) -> Iterator[list[dict[str, str]]]:
    for start in range(0, len(handles), BATCH):
        part = handles[start : start + BATCH]
        yield [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(part)]


def _translated(queue: str, error: Exception) -> OperatorError | TryAgainError:
    """Return our error for one of boto3's, with codes only, never its message."""
    if isinstance(error, CREDENTIALS):
        return QueueUnusableError(queue=queue, reason="there are no credentials")
    if isinstance(error, boto.NoRegionError):
        return QueueUnusableError(queue=queue, reason="no region is set")
    if not isinstance(error, boto.ClientError):
        return QueueBusyError(queue=queue, code=type(error).__name__)
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in REASONS:
        return QueueUnusableError(queue=queue, reason=REASONS[code])
    if status in (401, 403):
        return QueueUnusableError(queue=queue, reason=REASONS["AccessDenied"])
    return QueueBusyError(queue=queue, code=str(status))
