"""The agent that a fresh service has, so that the first run works without a key."""

from milepost.core.agents import Agent

DEMO_AGENT = Agent(
    id="",
    version=0,
    name="demo",
    model="demo/offline",
    instructions="You are Milepost's offline demo. Use the tools where they fit.",
    tools=("add", "multiply", "current_time", "send_email"),
)
