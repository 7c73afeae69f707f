#!/usr/bin/env bash
# A storage account, an identity, an image, a coordinator and workers for the queues cpu and gpu, in a resource group of their own.
# Needs: az login; run it from the root of the repository. docs/how-to/run-on-azure.md says why each command is there.
# Not tried against a subscription by dagkit's authors. Take it all down with: az group delete --name GROUP
set -euo pipefail

group=${1:?"usage: deploy.sh GROUP ACCOUNT [LOCATION]"} account=${2:?"usage: deploy.sh GROUP ACCOUNT [LOCATION]"} location=${3:-westeurope}
registry=${account}images prefix=$account/proj

az group create --name "$group" --location "$location"
az storage account create --resource-group "$group" --name "$account" --sku Standard_LRS --kind StorageV2 \
    --allow-blob-public-access false --min-tls-version TLS1_2
az identity create --resource-group "$group" --name dagkit
of() { az identity show --resource-group "$group" --name dagkit --query "$1" --output tsv; }
identity=$(of id) principal=$(of principalId) client=$(of clientId)
scope=$(az storage account show --resource-group "$group" --name "$account" --query id --output tsv)
me=$(az ad signed-in-user show --query id --output tsv)
for role in "Storage Blob Data Contributor" "Storage Queue Data Contributor" "Storage Table Data Contributor"; do
    az role assignment create --role "$role" --scope "$scope" --assignee-object-id "$principal" \
        --assignee-principal-type ServicePrincipal
    az role assignment create --role "$role" --scope "$scope" --assignee-object-id "$me" --assignee-principal-type User
done

az acr create --resource-group "$group" --name "$registry" --sku Basic
az acr build --registry "$registry" --image dagkit:1 --file examples/azure/Dockerfile .
az role assignment create --role AcrPull --assignee-object-id "$principal" --assignee-principal-type ServicePrincipal \
    --scope "$(az acr show --name "$registry" --query id --output tsv)"

az containerapp env create --resource-group "$group" --name dagkit --location "$location"
app() {
    local name=$1 settings=($2)
    shift 2
    az containerapp create --resource-group "$group" --environment dagkit --name "$name" \
        --image "$registry.azurecr.io/dagkit:1" --registry-server "$registry.azurecr.io" \
        --registry-identity "$identity" --user-assigned "$identity" \
        --env-vars "JOBQ_WORKFLOW_PREFIX=$prefix" "AZURE_CLIENT_ID=$client" "${settings[@]}" "$@"
}
app coordinator DAGKIT_COORDINATOR_HEALTH=0.0.0.0:8080 --args coordinator \
    --min-replicas 1 --max-replicas 1 --cpu 0.5 --memory 1Gi --ingress internal --target-port 8080
for queue in cpu gpu; do
    app "worker-$queue" "DAGKIT_WORKER_SLOTS=2 DAGKIT_GRACE=30s JOBQ_KILL_TIMEOUT=60s" --args worker "$queue" \
        --min-replicas 0 --max-replicas 20 --cpu 2 --memory 4Gi --termination-grace-period 600 \
        --scale-rule-name queue --scale-rule-type azure-queue --scale-rule-identity "$identity" \
        --scale-rule-metadata "accountName=$account" "queueName=$queue" queueLength=2
done
echo "export JOBQ_WORKFLOW_PREFIX=$prefix; dagkit doctor; python examples/azure/pipeline.py azure://$prefix"
