"""Conditions: tasks that run only if an output says so, and a join that needs most of its parents."""

from dagkit import almost_all, shell, task, workflow


@task
def measure(sensor):
    if sensor == 3:
        raise OSError(f"sensor {sensor} does not answer")
    return {"sensor": sensor, "value": 20 + sensor / 10}


@task
def average(measurements):
    values = [m["value"] for m in measurements if m is not None]
    return {"mean": sum(values) / len(values), "sensors": len(values)}


@task
def alarm(result):
    return f"too warm: {result['mean']:.1f} °C"


@task
def all_clear(result):
    return f"fine: {result['mean']:.1f} °C from {result['sensors']} sensors"


with workflow("greenhouse", result_policy="all_sinks_succeed") as flow:
    measured = measure.options(name="sensor-{sensor}").map(sensor=range(6))
    mean = average.options(dep_policy=5)(measured)  # any 5 of the 6 are enough
    warm = alarm.options(when=mean["mean"] > 30)(mean)
    fine = all_clear.options(when=(mean["mean"] <= 30) & (mean["sensors"] >= 3))(mean)
    shell("echo a sensor may need a look", name="note", dep_policy="all_settled", when=~almost_all(measured, 0))(
        after=measured
    )
    flow.result = {"alarm": warm, "all clear": fine}

if __name__ == "__main__":
    print(flow, end="\n\n")

    run = flow.run()

    print(run.result())
    for row in run.tasks():
        print(f"{row.name:10} {row.state.words:10} {row.error.splitlines()[0] if row.error else ''}")
