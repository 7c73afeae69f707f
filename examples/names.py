"""Names: every task of a map says which item it is, so that a failure says which item failed."""

from dagkit import TaskFailed, task, workflow


@task
def parse(text):
    return float(text)


@task
def scale(value, factor, offset):
    return value * factor + offset


@workflow
def table(texts):
    values = parse.options(name="parse-{text}").map(texts)
    return scale.options(name="scale-{factor}-{offset:02d}").partial(values[0]).product(factor=[1, 10], offset=[0, 5])


if __name__ == "__main__":
    run = table(["1.5", "2", "3.25"]).run()
    print(sorted(run.outputs().items()), end="\n\n")

    run = table(["1.5", "two", "3.25"]).run()
    for failure in run.errors():
        print(f"{failure.task}: {failure.error}")
    try:
        run.result()
    except TaskFailed as failure:
        print(f"the run failed because of {failure.task}")
