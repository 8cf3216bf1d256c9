"""What the forms of the dashboard say that ending an attempt costs."""

from __future__ import annotations

from dflash_supervise.web.runpage import cost_text


def test_an_attempt_that_has_ended_loses_nothing_more() -> None:
    run = {"step": 120, "checkpoint_step": 100}
    assert "20 steps may be lost" in cost_text({**run, "attempt_ended": False})
    assert "20 steps may be lost" in cost_text({**run, "attempt_ended": None}), "nobody saw it end"
    assert cost_text({**run, "attempt_ended": True}) == "Its attempt has ended already, so no steps are lost by this."
