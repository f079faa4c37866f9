"""What an agent is where nobody says otherwise."""

from dataclasses import asdict

from milepost.core.agents import Agent, Limits


def test_an_agent_that_says_nothing_of_limits_has_these() -> None:
    assert asdict(Limits()) == {
        "max_steps": 6,
        "model_retries": 2,
        "retry_backoff_s": 1.0,
        "rate_limit_cooldown_s": 5.0,
        "tool_timeout_s": 60.0,
        "approval_ttl_s": 86_400.0,
        "temperature": None,
        "max_output_tokens": None,
        "top_p": None,
        "stop_sequences": (),
        "reasoning_effort": None,
        "model_timeout_s": None,
        "max_model_calls": None,
        "max_tool_calls": None,
        "max_tokens": None,
        "max_cost_usd_micros": None,
        "active_s": None,
        "warn_at": 0.8,
    }


def test_an_agent_that_says_nothing_calls_at_once_and_has_nothing_switched_on() -> None:
    agent = Agent("agt_1", 1, "clerk", "test/model")

    assert agent.parallel_tools
    assert not agent.routing_only
    switched = (
        agent.policy,
        agent.cache_ttl_s,
        agent.compression,
        agent.response_format,
        agent.loop_detection,
        agent.guardrails,
    )
    assert set(switched) == {None}
    assert (agent.tools, agent.fallbacks, agent.stop_when) == ((), (), ())
