"""A sweep: one task prepares, a map of tasks tries parameters, one task compares."""

from dagkit import task, workflow


@task
def featurize(n):
    return [[x / n, (x / n) ** 2 + 0.1] for x in range(n)]


@task(retries=3)
def train(features, lr):
    """Gradient descent for y = w x² + b."""
    w = b = 0.0
    for _ in range(400):
        errors = [(w * x * x + b - y, x) for x, y in features]
        w -= lr * sum(error * x * x for error, x in errors) / len(errors)
        b -= lr * sum(error for error, _ in errors) / len(errors)
    mae = sum(abs(w * x * x + b - y) for x, y in features) / len(features)
    return {"lr": lr, "w": round(w, 3), "b": round(b, 3), "mae": mae}


@task
def compare(models):
    return min(models, key=lambda model: model["mae"])


@workflow(default_queue="cpu")
def sweep(n, rates):
    features = featurize(n)
    return compare([train(features, lr) for lr in rates])


if __name__ == "__main__":
    flow = sweep(200, rates=[0.5, 0.1, 0.01, 0.001])  # traced: nothing has run
    print(flow, end="\n\n")

    run = flow.run()

    for row in run.tasks():
        print(f"{row.name:10} {row.state.words:10} {row.duration_s:.2f} s")
    print("best:", run.result())
