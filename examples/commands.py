"""Commands are tasks: results go in as arguments, and no value is ever run as a command."""

import os

import zkplan

save = zkplan.shell("file=$(mktemp); cat > $file; echo $file", input="{text}")
count = zkplan.shell("wc -w < {file}")

with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("commands", attempts=1) as plan:
        saved = plan.add_task(save, kwargs={"text": "four words, no more\n"})
        counted = plan.add_task(count, kwargs={"file": saved})
        removed = plan.add_task(zkplan.shell(["rm", "{file}"]), [saved], after=[counted])
        told = plan.add_task(
            zkplan.shell("echo {number} {text}"),
            kwargs={"number": counted, "text": "words; it's not $(run)"},
            after=[removed],
        )
        broken = plan.add_task(zkplan.shell("echo no data >&2; exit 3"), name="broken")
    print(told.result(timeout=60))
    try:
        broken.result(timeout=60)
    except zkplan.ShellFailed as failed:
        print(failed.exit_code, failed.stderr)
    plan.remove()
