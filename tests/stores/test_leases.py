"""The arithmetic of leases under a clock that jumps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dagkit.stores.leases import HeldLease, driver_of

TTL_S = 15.0

# (real seconds that pass, jump of the clock)
steps = st.lists(
    st.tuples(st.floats(0, 10), st.sampled_from([0.0, 0.0, -1.0, -30.0, -3600.0])), min_size=1, max_size=30
)


@given(steps=steps)
def test_while_the_owner_renews_in_time_nobody_else_ever_finds_it_free(steps):
    now = 1_800_000_000.0
    lease = HeldLease.new("run/w", "a", TTL_S, now)

    for passed, jump in steps:
        now += passed + jump

        lease = lease.at(now)  # somebody else asks
        assert lease.is_held(now)
        lease = lease.renewed(TTL_S, now)


@given(steps=steps, asked_every=st.floats(0.1, 10))
def test_after_the_owner_is_gone_it_becomes_free_within_two_spans_of_the_last_jump(steps, asked_every):
    now = 1_800_000_000.0
    lease = HeldLease.new("run/w", "a", TTL_S, now)
    for passed, jump in steps:
        now += passed + jump
        lease = lease.renewed(TTL_S, now)

    waited = 0.0
    while lease.is_held(now):
        lease = lease.at(now)
        now += asked_every
        waited += asked_every

    # each jump back may add the whole span once to what a renewal promises, but never the length of the jump
    assert waited <= 2 * TTL_S + asked_every


@given(first=st.floats(1, 100), second=st.floats(1, 100), passed=st.floats(0, 0.9))
def test_a_renewal_never_shortens(first, second, passed):
    lease = HeldLease.new("run/w", "a", first, 1000.0)

    renewed = lease.renewed(second, 1000.0 + passed)

    assert renewed.expires_at >= lease.expires_at
    assert renewed.token == lease.token


def test_a_run_is_driven_by_its_own_coordinator_then_by_the_service_then_by_nobody():
    owners = {"run/w": "notebook", "coordinator": "service"}

    assert driver_of("w", is_over=False, owners=owners) == "notebook"
    assert driver_of("v", is_over=False, owners=owners) == "service"
    assert driver_of("v", is_over=True, owners=owners) is None
    assert driver_of("v", is_over=False, owners={}) is None
