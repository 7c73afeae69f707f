"""A simulation that outlasts its time limit: it saves its state when it is told, and the next attempt goes on."""

from __future__ import annotations

import sys

from dagkit import task, workflow


@task(queue="long", runtime="2m", retries=5)
def simulate(steps: int, seconds_per_step: float) -> dict[str, float]:
    import json
    import time

    from dagkit import checkpoint_dir, on_preempt

    place = checkpoint_dir() / "state.json"
    state = json.loads(place.read_text()) if place.exists() else {"step": 0, "value": 1.0}
    print("beginning at step", state["step"])
    told: list[str] = []
    on_preempt(told.append)
    while state["step"] < steps:
        time.sleep(seconds_per_step)
        state = {"step": state["step"] + 1, "value": state["value"] * 1.001}
        if told:
            place.write_text(json.dumps(state))
            raise TimeoutError(f"{told[0]}: saved at step {state['step']}")
    return state


@workflow
def campaign(steps: int, seconds_per_step: float):
    return simulate(steps, seconds_per_step)


if __name__ == "__main__":
    target = sys.argv[sys.argv.index("--target") + 1] if "--target" in sys.argv else "cluster"
    quick = "--quick" in sys.argv
    run = campaign(20 if quick else 1000, 0.01 if quick else 0.3).run(target=target)
    print(f"value {run.result()['value']:.4f} after {run.result()['step']} steps")
