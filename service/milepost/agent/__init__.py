"""Agents in process: the service's own loop over a log in memory."""

from milepost.agent.agent import Agent
from milepost.agent.approval import ApprovalHandler, ApprovalRequest, ConfirmAction, Decision
from milepost.agent.asking import Messages, RunOptions
from milepost.agent.knowledge import Knowledge
from milepost.agent.observer import Observer
from milepost.agent.observers import LoggingObserver, RecordingObserver
from milepost.agent.providers import Providers
from milepost.agent.result import AgentResult, CallMade
from milepost.agent.steering import Steering
from milepost.agent.stream import StreamChunk
from milepost.agent.trace import AgentTrace, TraceStep
from milepost.memory.conversation import Conversation

__all__ = [
    "Agent",
    "AgentResult",
    "AgentTrace",
    "ApprovalHandler",
    "ApprovalRequest",
    "CallMade",
    "ConfirmAction",
    "Conversation",
    "Decision",
    "Knowledge",
    "LoggingObserver",
    "Messages",
    "Observer",
    "Providers",
    "RecordingObserver",
    "RunOptions",
    "Steering",
    "StreamChunk",
    "TraceStep",
]
