#!/usr/bin/env python3
"""redis-py against a running service: client.py PORT PASSWORD, in both versions of the protocol."""

import sys

import redis

port, password = int(sys.argv[1]), sys.argv[2]

for protocol in (2, 3):
    client = redis.Redis(port=port, password=password, protocol=protocol, client_name="tests", decode_responses=True)
    assert client.ping() is True
    assert client.echo("hello") == "hello"
    assert client.client_getname() == "tests"
    assert client.info()["loading"] == 0
    assert client.config_get("save") == {"save": ""}

    key = f"redis-py:{protocol}"
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 60) == [0, 16, 15, -1, 2]
    assert client.execute_command("CL.THROTTLE", f"{key}:large", 15, 30, 60, 17) == [1, 16, 16, -1, 0]

    verdict = client.execute_command("TOLLKEEPER.CHECK", "user_id", key, "plan", "free")
    if protocol == 3:
        assert verdict["allowed"] is True and verdict["limiting"] is None, verdict
        rule = verdict["rules"][-1]
        assert (rule["rule"], rule["key"], rule["remaining"]) == ("free-user", key, 49), rule
    else:
        assert verdict[:5] == [1, None, 0, 0, "store"], verdict
        assert verdict[-1][:5] == ["free-user", key, 1, 50, 49], verdict

    pipeline = client.pipeline(transaction=False)
    for _ in range(1000):
        pipeline.execute_command("CL.THROTTLE", f"{key}:pipeline", 999, 1, 60)
    remaining = [answer[2] for answer in pipeline.execute()]
    assert remaining == list(range(999, -1, -1)), remaining

    # The default: between MULTI and EXEC.
    pipeline = client.pipeline()
    for _ in range(2):
        pipeline.execute_command("CL.THROTTLE", f"{key}:transaction", 0, 1, 60)
    assert [answer[0] for answer in pipeline.execute()] == [0, 1]
    assert client.delete(f"{key}:transaction", f"{key}:never") == 1
    assert client.execute_command("CL.THROTTLE", f"{key}:transaction", 0, 1, 60)[0] == 0

    try:
        client.get("key")
    except redis.ResponseError as error:
        assert "unknown command 'GET'" in str(error), error
    else:
        raise AssertionError("GET was answered")
    client.close()

try:
    redis.Redis(port=port, password="wrong").ping()
except redis.AuthenticationError:
    pass
else:
    raise AssertionError("a wrong password was taken")

print("redis-py: fine")
