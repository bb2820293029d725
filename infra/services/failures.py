"""What can go wrong with a service: it does not run, or a program is missing."""


class ServiceError(Exception):
    """Say that a service does not run as asked; the others may go on.

    Args:
        service: Its name: `kafka`, `redis` or `s3`.
        message: What happened, in one sentence.
        hint: What to do about it, as a command where one helps.

    Example:
        >>> raise ServiceError("redis", "redis ended at once", hint="read its log")
        Traceback (most recent call last):
        ...
        turnstate.infra.services.failures.ServiceError: redis ended at once
    """

    def __init__(self, service: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.service = service
        self.message = message
        self.hint = hint


class MissingProgramError(ServiceError):
    """Say that a program is not installed; the hint is the command that brings it."""
