#!/bin/sh
# A worker with curl and sed: it doubles numbers for any plan that asks.
# ZKPLAN_URL is where `zkplan serve` listens, ZKPLAN_TOKEN a token with the role `work`.

# The answer, and behind it a line with its status. A service that is away is asked again, until
# this shell is gone: $$ is its process in what it runs beside itself, too.
ask() {
  while kill -0 $$ 2>/dev/null; do
    answer=$(curl --silent --max-time 90 --write-out '\n%{http_code}' \
      --header "Authorization: Bearer $ZKPLAN_TOKEN" --header "Content-Type: application/json" \
      --data "$2" "${ZKPLAN_URL%/}/v1/leases/$1")
    case $answer in
      *503 | *000 | "") sleep 0.5 ;;
      *) printf '%s\n' "$answer" && return ;;
    esac
  done
}

# A field of JSON on one line: enough for what the service answers about one task of two numbers.
field() {
  printf '%s\n' "$2" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"
}

while :; do
  claimed=$(ask claim '{"kinds": ["double"], "count": 1, "wait": 20, "lease": 3}')
  id=$(field id "$claimed")
  [ -n "$id" ] || continue
  echo "claimed $id"
  # Renew the lease until the work is done, or this shell is gone.
  (
    while sleep 1 && kill -0 $$ 2>/dev/null; do
      ask renew "{\"ids\": [\"$id\"]}" >/dev/null
    done
  ) &
  renewing=$!
  numbers=$(printf '%s\n' "$claimed" | sed -n 's/.*"args":\[\([^]]*\)\].*/\1/p')
  sleep "${numbers#*,}"
  value="{\"twice\": $((2 * ${numbers%%,*})), \"by\": \"$id\"}"
  told=$(ask complete "{\"results\": [{\"id\": \"$id\", \"value\": $value}]}")
  kill "$renewing"
  case $told in
    *200) echo "committed $id" ;;
    *) echo "refused $id $(field detail "$told")" ;;
  esac
done
