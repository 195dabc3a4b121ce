"""Cluster roles with an `aggregationRule`: combines the rules of all roles that it selects."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import JsonObject, key_of, labels_of, name_of
from kubesched.playground.apimachinery.selectors import selector_matches
from kubesched.playground.client.controller import Controller, ControllerContext

RESOURCE = "clusterroles.rbac.authorization.k8s.io"


class ClusterRoleAggregation(Controller[str]):
    """Keeps the rules of aggregated roles up to date."""

    name = "clusterrole-aggregation"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._roles = self.watch(RESOURCE, self._role_changed)

    def sync(self, key: str) -> float | None:
        role = self._roles.get(key)
        if role is None or not role.get("aggregationRule"):
            return None
        rules = self._aggregated(role)
        if rules != (role.get("rules") or []):
            self.api.patch(RESOURCE, None, name_of(role), {"rules": rules})
        return None

    def _aggregated(self, role: JsonObject) -> list[JsonObject]:
        """Rules of the selected roles without duplicates, ordered by selector, then by name."""
        selectors = role["aggregationRule"].get("clusterRoleSelectors") or ()
        others = sorted((other for other in self._roles if other is not role), key=name_of)
        rules: list[JsonObject] = []
        for selector in selectors:
            for other in others:
                if not selector_matches(selector, labels_of(other)):
                    continue
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
        return rules

    def _role_changed(self, kind: str, role: JsonObject, old: JsonObject | None) -> None:
        for aggregated in self._roles:
            if aggregated.get("aggregationRule"):
                self.queue.add(key_of(aggregated))
