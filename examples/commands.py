"""Commands: a workflow of shell tasks, run from Python, and written as YAML for the command line."""

from pathlib import Path

from dagkit import Flow, shell, workflow

with workflow("words", default_queue="shell") as flow:
    text = shell("printf 'to be or not to be' > words.txt", name="text")()
    count = shell("wc -w < words.txt > $JOBQ_OUTPUT_FILE", name="count")(after=text)
    unique = shell("tr ' ' '\\n' < words.txt | sort -u | wc -l > $JOBQ_OUTPUT_FILE", name="unique")(after=text)
    shell('echo "$GREETING, repeated words"', name="tell", env={"GREETING": "there are"}, when=unique < count)(
        after=[count, unique]
    )

if __name__ == "__main__":
    flow.to_yaml("commands.yaml")
    print(Path("commands.yaml").read_text())

    run = Flow.from_file("commands.yaml").run()  # or: dagkit run commands.yaml

    print("words:", run["count"], "different:", run["unique"])
    print(run.logs("tell"), end="")
