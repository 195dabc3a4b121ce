"""Devices: the recursion that upstream's allocator is, with the rules of each release.

It knows no candidates, no charges and no lists of constraints per request: every step looks at
everything anew.
"""

LIMIT = 32


class Refused(Exception):
    """The claim cannot be decided about, with the message."""


class TooMany(Exception):
    """More devices than a claim may have."""


class Search:
    """One node's devices, all of one pool, and what is to be allocated from them.

    Their capacity is `mem`, in whole numbers, and their attributes are `numa`, `big` and `odd`.
    """

    def __init__(self, devices, counters, claims, held, reference, pool):
        self.devices = devices
        self.counters = counters
        self.claims = claims
        self.held = held
        self.reference = reference
        self.pool = pool
        self.picks = []
        """(claim, request, alternative, device) in order."""
        self.neighbours = [{} for _ in claims]
        """What 1.36 remembers for distinctAttribute: one value per request."""

    # -- before the search

    def alternatives(self, c, r):
        request = self.claims[c]["spec"]["devices"]["requests"][r]
        if "exactly" in request:
            return [{"name": request["name"], **request["exactly"]}]
        return request["firstAvailable"]

    def selects(self, c, asked, number):
        for selector in asked.get("selectors", ()):
            expression = selector["cel"]["expression"]
            subject = f"claim default/{self.claims[c]['metadata']['name']}: selector #0"
            content = self.devices[number].get("attributes", {})
            if expression == "broken if odd" and "odd" in content:
                if self.reference.cel_errors_name_the_device:
                    subject += f" on device gpu.example.com/{self.pool}/d{number}"
                raise Refused(f"{subject}: CEL runtime error: broken")
            if expression == "big=True" and "big" not in content:
                return False
        return True

    def wants(self, asked, number):
        """What a request takes of the capacity; None if there is none."""
        capacity = self.devices[number].get("capacity", {}).get("mem")
        if capacity is None:
            return None
        requested = asked.get("capacity", {}).get("requests", {}).get("mem")
        return int(capacity["value"] if requested is None else requested)

    def has_room(self, asked, number, consumed, picked):
        if asked.get("capacity") and self.wants(asked, number) is None:
            return False
        wanted = self.wants(asked, number)
        if wanted is None:
            return True
        return wanted + consumed + picked <= int(self.devices[number]["capacity"]["mem"]["value"])

    def consumed(self, number):
        return sum(
            int(more.get("consumedCapacity", {}).get("mem", 0))
            for n, more in self.held
            if n == number
        )

    def picked(self, number):
        if not self.is_shareable(number):
            return 0
        return sum(self.wants(asked, n) or 0 for _, _, asked, n in self.picks if n == number)

    def is_shareable(self, number):
        return self.devices[number].get("allowMultipleAllocations", False)

    def all_of(self, c, asked):
        counted = not self.reference.full_devices_fail_all
        return [
            n
            for n in range(len(self.devices))
            if self.selects(c, asked, n)
            and self.has_room(asked, n, self.consumed(n) if counted else 0, 0)
        ]

    def count(self, c, asked):
        if asked["allocationMode"] == "All":
            return len(self.all_of(c, asked))
        return asked["count"]

    def check(self):
        for c, each in enumerate(self.claims):
            requests = each["spec"]["devices"]["requests"]
            fewest = sum(
                min([self.count(c, asked) for asked in self.alternatives(c, r)])
                for r in range(len(requests))
            )
            if fewest > LIMIT:
                raise Refused(
                    f"claim default/{each['metadata']['name']}: number of requested devices "
                    f"{fewest} "
                    f"exceeds the claim limit of {LIMIT}"
                )

    # -- the search

    def run(self):
        self.check()
        try:
            return self.one(0, 0, None, 0, 0)
        except TooMany:
            raise Refused("allocation max size exceeded") from None

    def one(self, c, r, alternative, k, start):
        if c == len(self.claims):
            return True
        requests = self.claims[c]["spec"]["devices"]["requests"]
        if r == len(requests):
            try:
                return self.one(c + 1, 0, None, 0, 0)
            except TooMany:
                return False
        alternatives = self.alternatives(c, r)
        if alternative is None and "firstAvailable" in requests[r]:
            too_many = 0
            for number in range(len(alternatives)):
                try:
                    if self.one(c, r, number, 0, 0):
                        return True
                except TooMany:
                    too_many += 1
            if too_many == len(alternatives):
                raise TooMany
            return False
        asked = alternatives[alternative or 0]
        wants_all = asked["allocationMode"] == "All"
        total = self.count(c, asked)
        if wants_all and not total:
            return False
        if k == total:
            return self.one(c, r + 1, None, 0, 0)
        if sum(pick[0] == c for pick in self.picks) + total - k > LIMIT:
            raise TooMany
        numbers = [self.all_of(c, asked)[k]] if wants_all else range(start, len(self.devices))
        for number in numbers:
            if not wants_all:
                if self.in_use(c, asked, number) or not self.selects(c, asked, number):
                    continue
                if not self.has_room(asked, number, self.consumed(number), self.picked(number)):
                    continue
            if not self.take(c, r, asked, number, must=wants_all):
                continue
            try:
                if self.one(c, r, alternative or 0, k + 1, number + 1):
                    return True
            except TooMany:
                self.give_back()
                raise
            self.give_back()
        return False

    # -- one device

    def in_use(self, c, asked, number):
        if self.is_shareable(number):
            holders = []
        else:
            holders = [pick[0] for pick in self.picks if pick[3] == number]
        if asked.get("adminAccess"):
            return c in holders
        return bool(holders) or (number, {}) in self.held

    def take(self, c, r, asked, number, must):
        if self.in_use(c, asked, number) or not self.suffice(number):
            return False
        if self.devices[number].get("taints") and not asked.get("tolerations"):
            return False
        if not self.constrained(c, r, asked, number):
            if must:
                name = self.claims[c]["metadata"]["name"]
                raise Refused(
                    f"claim default/{name}, request {asked['name']}: cannot add device "
                    f"gpu.example.com/{self.pool}/d{number} because a claim constraint would not "
                    "be satisfied"
                )
            return False
        if not self.has_room(asked, number, self.consumed(number), self.picked(number)):
            return False
        self.picks.append((c, r, asked, number))
        if self.is_distinct(c, r, asked):
            self.neighbours[c][self.name(c, r)] = self.numa(number)
        return True

    def give_back(self):
        c, r, asked, _ = self.picks.pop()
        if self.is_distinct(c, r, asked):
            self.neighbours[c].pop(self.name(c, r), None)

    def charge(self, number):
        return sum(
            int(counter["value"])
            for each in self.devices[number].get("consumesCounters", ())
            for counter in each["counters"].values()
        )

    def suffice(self, number):
        """Are the counters enough for what is held, picked before, and this device?"""
        charge = self.charge(number)
        if not charge:
            return True
        held = {n for n, _ in self.held}
        left = self.counters - sum(self.charge(n) for n in held)
        charged = set()
        for _, _, _, n in self.picks:
            if not self.is_free_of_charge(n, charged):
                left -= self.charge(n)
            charged.add(n)
        if self.is_free_of_charge(number, charged):
            return True
        return left >= charge and left >= 0

    def is_free_of_charge(self, number, picked_before):
        if not self.is_shareable(number):
            return False
        shares = [more for n, more in self.held if n == number and more]
        if self.reference.shared_counters_charged_once and shares:
            return True
        has_capacity = any("consumedCapacity" in more for more in shares)
        return has_capacity or number in picked_before

    # -- constraints

    def name(self, c, r):
        return self.claims[c]["spec"]["devices"]["requests"][r]["name"]

    def numa(self, number):
        return self.devices[number].get("attributes", {}).get("numa")

    def covered(self, constraint, c, r, asked):
        named = constraint.get("requests", ())
        name = self.name(c, r)
        return not named or name in named or f"{name}/{asked['name']}" in named

    def constrained(self, c, r, asked, number):
        for constraint in self.claims[c]["spec"]["devices"].get("constraints", ()):
            if not self.covered(constraint, c, r, asked):
                continue
            value = self.numa(number)
            if value is None:
                return False
            others = [
                self.numa(n)
                for k, q, other, n in self.picks
                if k == c and self.covered(constraint, k, q, other)
            ]
            if "matchAttribute" in constraint:
                if any(value != other for other in others):
                    return False
            elif self.reference.distinct_attribute_counts_all:
                if value in others:
                    return False
            elif others and value in self.neighbours[c].values():
                return False
        return True

    def is_distinct(self, c, r, asked):
        return any(
            "distinctAttribute" in each and self.covered(each, c, r, asked)
            for each in self.claims[c]["spec"]["devices"].get("constraints", ())
        )
