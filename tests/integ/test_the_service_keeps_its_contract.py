"""Each route of the service answers any request as its contract says, and never with 5xx."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode

from zkplan import Client
from zkplan.service.parameters import NUMBER_MAX

from .serving import Service, serving

#: Requests to each route, besides the requests that try the bounds of its contract.
EXAMPLES = int(os.environ.get("ZKPLAN_CONTRACT_EXAMPLES", "2"))
#: Streams never end by themselves, and have tests of their own.
_ENDLESS = r"/events$"
#: The service may refuse what the contract cannot express, such as an unknown time zone.
_REFUSALS = ["2xx", "304", "400", "403", "404", "406", "409", "410", "412", "413", "422"]

#: Requests that break the contract must be refused: schemathesis' own list lacks 413.
_WRONG = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429"]


@pytest.fixture(scope="module")
def contract_service(zkplan_hosts: str) -> Iterator[Service]:
    """A service of a root with some plans in it."""
    with serving(zkplan_hosts, f"/t-contract-{os.getpid()}") as service:
        seed(service)
        yield service
        client: Client = service.link.client
        for plan in client.plans():
            plan.remove()


def seed(service: Service) -> None:
    """Plans of all sorts, a limit and a schedule, which requests may find."""
    for index in range(12):
        plan = service.post("/plans", {"name": f"seed{index}"})["number"]
        tasks = [
            {"id": "a", "function": "operator:add", "args": [1, 2]},
            {"kind": "resize", "args": [{"$task": "a"}], "name": "second"},
        ]
        service.post(f"/plans/{plan}/tasks", {"tasks": tasks})
        if index:
            service.post(f"/plans/{plan}/ready")
    service.post("/limits/db", {"size": 3}, "PUT")
    service.post("/schedules/night", {"cron": "0 3 * * *", "builder": "m.n:build"}, "PUT")


def contract(service: Service) -> Any:
    """The contract as the service tells it. Most requests are about plans that are there."""
    checks = {
        "positive_data_acceptance": {"expected-statuses": _REFUSALS},
        "negative_data_rejection": {"expected-statuses": _WRONG},
    }
    # Each request has the token: what would lack it, or have another, would be no violation.
    generation = {"with-security-parameters": False}
    config = schemathesis.Config.from_dict({"checks": checks, "generation": generation})
    url = f"{service.url}/v1/openapi.json"
    schema = schemathesis.openapi.from_url(url, config=config, timeout=60)
    plans = [each["number"] for each in service.get("/plans?limit=500")["items"]]

    @schema.hook("map_path_parameters")
    def map_path_parameters(_: Any, parameters: Any) -> Any:
        for name, known in (("plan", plans), ("task", range(4, 8))):
            wanted = (parameters or {}).get(name)
            # A number that is too large stays so, to be refused.
            if type(wanted) is int and 0 <= wanted <= NUMBER_MAX and wanted % 4:
                parameters[name] = known[wanted % len(known)]
        return parameters

    return schema.exclude(path_regex=_ENDLESS)


@pytest.mark.timeout(max(600, 60 * EXAMPLES))
def test_every_route_answers_as_the_contract_says(contract_service: Service) -> None:
    asked, token = 0, {"Authorization": f"Bearer {contract_service.token}"}
    for found in contract(contract_service).get_all_operations():
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @given(found.ok().as_strategy(generation_mode=mode))
            @settings(
                max_examples=EXAMPLES, derandomize=True, suppress_health_check=list(HealthCheck)
            )
            def check(case: Case[Any]) -> None:
                nonlocal asked
                asked += 1
                case.call_and_validate(timeout=60, headers=token)

            # A route without parameters cannot be asked wrongly.
            with suppress(Unsatisfiable) if mode is GenerationMode.NEGATIVE else nullcontext():
                check()
    assert asked > 40 * EXAMPLES
