"""Host ports in use, by row.

# Upstream: a node's ports are a set, not a multiset. If two pods on a node share one (ip, protocol,
# port), the port is free as soon as one of them leaves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kubesched.api.host_ports import ANY_IP, HostPort

SavedPort = tuple[str, int, str, list[int]]


class HostPortIndex:
    """(protocol, port) -> ip -> rows."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], dict[str, set[int]]] = {}

    def add(self, row: int, ports: Iterable[HostPort]) -> None:
        for port in ports:
            self.add_rows(port, (row,))

    def remove(self, row: int, ports: Iterable[HostPort]) -> None:
        for port in ports:
            self.remove_rows(port, {row})

    def add_rows(self, port: HostPort, rows: Collection[int]) -> None:
        if rows:
            by_ip = self._rows.setdefault((port.protocol, port.port), {})
            by_ip.setdefault(port.ip, set()).update(rows)

    def remove_rows(self, port: HostPort, rows: set[int]) -> set[int]:
        """Those of the rows on which the port was in use."""
        by_ip = self._rows.get((port.protocol, port.port))
        if by_ip is None or port.ip not in by_ip:
            return set()
        taken = by_ip[port.ip] & rows
        by_ip[port.ip] -= taken
        if not by_ip[port.ip]:
            del by_ip[port.ip]
        if not by_ip:
            del self._rows[(port.protocol, port.port)]
        return taken

    def conflicting_rows(self, wanted: Iterable[HostPort]) -> set[int]:
        """Rows on which at least one of the wanted ports is in use."""
        rows: set[int] = set()
        for port in wanted:
            by_ip = self._rows.get((port.protocol, port.port))
            if by_ip is None:
                continue
            if port.ip == ANY_IP:
                rows.update(*by_ip.values())
            else:
                rows.update(by_ip.get(ANY_IP, ()), by_ip.get(port.ip, ()))
        return rows

    def any_taken(self, row: int, wanted: Iterable[HostPort]) -> bool:
        """True if at least one of the wanted ports is in use on this row."""
        for port in wanted:
            by_ip = self._rows.get((port.protocol, port.port))
            if by_ip is None:
                continue
            ips = by_ip if port.ip == ANY_IP else (ANY_IP, port.ip)
            if any(row in by_ip.get(ip, ()) for ip in ips):
                return True
        return False

    def is_taken(self, row: int, port: HostPort) -> bool:
        """True if this port is in use on the row with exactly this address (no wildcards)."""
        return row in self._rows.get((port.protocol, port.port), {}).get(port.ip, ())

    def save(self) -> list[SavedPort]:
        """Every port in use: protocol, port, address, rows."""
        return [
            (protocol, port, ip, list(rows))
            for (protocol, port), by_ip in self._rows.items()
            for ip, rows in by_ip.items()
        ]

    def restore(self, saved: Iterable[SavedPort]) -> None:
        """Replace the contents. The pods alone do not determine which shared ports are free."""
        self._rows.clear()
        for protocol, port, ip, rows in saved:
            self._rows.setdefault((protocol, port), {})[ip] = set(rows)

    def ports_of(self, row: int) -> set[HostPort]:
        """All ports in use on a row. Scans the whole index: for self-checks and diagnostics."""
        return {
            HostPort(ip=ip, protocol=protocol, port=port)
            for (protocol, port), by_ip in self._rows.items()
            for ip, rows in by_ip.items()
            if row in rows
        }
