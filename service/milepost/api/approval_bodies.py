"""What people may answer to a question, as it comes in."""

from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.convertors import Convertor, register_url_convertor

from milepost.api.bodies import Body
from milepost.core.errors import InvalidError

DECISIONS_MAX = 100
REMEMBERED_S_MAX = 366 * 86_400

Comment = Annotated[str, Field(max_length=10_000)]
Digest = Annotated[str, Field(min_length=1, max_length=100)]


class ApprovalId(Convertor[str]):
    """An approval's id in a path, by its shape: `decisions` is none, whatever the method."""

    regex = "apr_[0-9A-Za-z]+"

    def convert(self, value: str) -> str:
        """Return it as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Return it as it is."""
        return value


register_url_convertor("approval_id", ApprovalId())


class Remembering(Body):
    """A yes that holds on, for the tool with any arguments or with these."""

    lasts: Literal["session"] = Field(alias="for")
    ttl_s: Annotated[float, Field(gt=0, le=REMEMBERED_S_MAX)]
    arguments: Literal["any", "same"] = "same"


class ApprovalDecision(Body):
    """What `POST /v1/approvals/{id}/decision` takes."""

    decision: Literal["approve", "deny", "happened", "not_happened", "stop"]
    comment: Comment | None = None
    digest: Digest | None = None
    arguments: dict[str, Any] | None = None
    result: Any = None
    remember: Remembering | None = None

    def require_coherent(self) -> None:
        """Raise `InvalidError` where something was sent that this decision has no use for."""
        for name, decision, what in (
            ("arguments", "approve", "replace those of a call that may be made"),
            ("remember", "approve", "lets more calls be made than this one"),
            ("result", "happened", "is what a call that happened has brought"),
        ):
            if getattr(self, name) is not None and self.decision != decision:
                raise InvalidError(
                    f"{name} {what}, and goes with {decision}, not with {self.decision}",
                    pointer=f"/{name}",
                )


class NamedDecision(ApprovalDecision):
    """One of many decisions, with the approval that it is about."""

    approval_id: Annotated[str, Field(min_length=1, max_length=64)]


class ApprovalDecisions(Body):
    """What `POST /v1/approvals/decisions` takes: each decision for itself, or all or none."""

    decisions: Annotated[list[NamedDecision], Field(min_length=1, max_length=DECISIONS_MAX)]
    mode: Literal["each", "all"] = "each"


class ApprovalWithdrawal(Body):
    """What `POST /v1/approvals/{id}/withdraw` takes."""

    reason: Comment | None = None
