#!/usr/bin/env bash
# Everything on this machine: Azurite, a coordinator, a worker for each queue, and a workflow that is submitted to them.
# Needs: npm install --global azurite; pip install 'dagkit[azure]'. Stops all of it at the end.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export BLOB_PORT=${BLOB_PORT:-10000} QUEUE_PORT=${QUEUE_PORT:-10001} TABLE_PORT=${TABLE_PORT:-10002}
export JOBQ_WORKFLOW_PREFIX=devstoreaccount1/demo

azurite --silent --inMemoryPersistence --skipApiVersionCheck \
    --blobPort "$BLOB_PORT" --queuePort "$QUEUE_PORT" --tablePort "$TABLE_PORT" &
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
until (exec 3<>"/dev/tcp/127.0.0.1/$BLOB_PORT" 4<>"/dev/tcp/127.0.0.1/$QUEUE_PORT" 5<>"/dev/tcp/127.0.0.1/$TABLE_PORT") 2>/dev/null; do
    sleep 0.2
done

dagkit coordinator 2>coordinator.log &
dagkit worker cpu --max-idle-backoff 1s 2>worker-cpu.log &
dagkit worker gpu --slots 2 --max-idle-backoff 1s 2>worker-gpu.log &

python "$here/pipeline.py" azure://devstoreaccount1/demo
dagkit list
