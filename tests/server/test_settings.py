"""Settings survive the way to a worker process."""

from __future__ import annotations

from headway.address import parse_address
from headway.server.settings import ApplicationGroup, HttpLimits, Mount, ProcessGroup, Tls


def test_a_group_read_from_json_equals_the_one_written() -> None:
    group = ProcessGroup(
        name="shop",
        mounts=(Mount("", "shop:app"), Mount("/admin", "/srv/admin.wsgi", "back office")),
        application_groups=(
            ApplicationGroup(),
            ApplicationGroup("back office", interpreters=2, own_gil=True, python_path=("/srv",)),
        ),
        binds=(parse_address("[::1]:80"), parse_address("unix:/run/shop.sock")),
        tls=Tls("chain.pem", "key.pem"),
        environment={"A": "b"},
        supplementary_groups=("www", "log"),
        http=HttpLimits(max_fields=7),
        trusted_proxies=("10.0.0.0/8", "unix"),
    )
    assert ProcessGroup.from_json(group.to_json()) == group
    assert ProcessGroup.from_json(ProcessGroup().to_json()) == ProcessGroup()
