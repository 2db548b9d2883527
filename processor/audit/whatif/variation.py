"""One partition under one other setting, stepped batch by batch beside the record."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from processor.audit.replay.memory_state import MemoryState
from processor.audit.replay.replay import ReplayedBatch
from processor.audit.replay.rules import RuleBook, Secrets
from processor.core.advice import Advice
from processor.core.errors import InvalidSettingsError
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.journal import JournalRecord
from processor.core.stream.partition import Partition
from processor.core.stream.step import DecodedBatch, advanced, due_slot, step
from processor.core.stream.tenant import Tenant, TenantSettings, fields_by_tenant

from .label_times import LabelStore, Retimed
from .ledger import LabelledDecision, Ledger
from .outcomes import TenantRun, count
from .settings import SettingsChange

HIDDEN_LABELS = (
    "labels come for positive decisions only: of cases the record refused nobody knows the label, and another setting "
    "would have decided others positively"
)


class Variation:
    """The stream under one other setting."""

    def __init__(
        self, change: SettingsChange, number: int, secrets: Secrets, tenants: frozenset[str], store: LabelStore | None
    ) -> None:
        self.change, self._number, self._secrets, self._tenants = change, number, secrets, tenants
        self.retimed = Retimed(change.delay, store) if change.delay and store else None
        self.refused: dict[str, str] = {}
        """tenants this setting cannot be tried on, and why"""
        self._lineage = ""
        self.partition: Partition | None = None
        self.runs: dict[str, TenantRun] = {}
        self.ledger = Ledger()

    def _begin(self, journal: JournalRecord) -> None:
        self._lineage = journal.lineage
        self.book, self.mirror = RuleBook(self._secrets, self._override), MemoryState()
        self.runs, self.ledger = {}, Ledger()
        self.partition = Partition(
            self._number, journal.partitions, Identity(journal.lineage, journal.sequence - 1, GENESIS)
        )
        if self.retimed:
            self.retimed.begin()

    def _override(self, tenant: str, rules: TenantSettings) -> TenantSettings:
        if rules.settings.feedback != "all":
            self.refused[tenant] = HIDDEN_LABELS
            return rules
        try:
            return self.change.under(tenant, rules)
        except InvalidSettingsError as error:
            self.refused[tenant] = str(error)
            return rules

    def follow(self, batch: ReplayedBatch) -> tuple[list[LabelledDecision], list[bytes]]:
        """One batch. The labels it joined, and decisions whose labels will never come."""
        journal = batch.journal
        assert batch.asked is not None
        if journal.lineage != self._lineage:
            self._begin(journal)
        self._configure(journal)
        asked, undecidable = self._transformed(journal, batch.asked)
        terms = self.book.in_force()
        due = self.mirror.due(due_slot(journal.clock, terms.slot), terms.sweep)
        assert self.partition is not None
        outcome = step(self.partition, asked, self.mirror.entries, due, journal.clock, terms)
        self.mirror.follow(outcome)
        self.partition = advanced(outcome.partition, batch.identity)
        made, labelled, expired = self.ledger.take(outcome, asked)
        count(self.runs, made, labelled, frozenset())
        for tenant in undecidable:
            self.runs.setdefault(tenant, TenantRun(tenant)).undecided += 1
        for alert in outcome.alerts:
            if alert.state == "raised" and alert.tenant in self.runs:
                self.runs[alert.tenant].alerts += 1
        return labelled, expired

    def _configure(self, journal: JournalRecord) -> None:
        """As ``Replay`` does it."""
        self.book.configs.update(journal.configs)
        fresh = bool(journal.terms) and journal.terms != self.book.terms
        if fresh:
            self.book.set_terms(journal.terms)
        self.book.assigned.update(journal.rules)
        affected = [name for name in self.partition.tenants if fresh or name in journal.rules] if self.partition else []
        if affected and self.partition is not None:
            tenants, own = dict(self.partition.tenants), fields_by_tenant(self.mirror.fields)
            for name in affected:
                number = tenants[name].number
                tenants[name] = Tenant.from_fields(number, own[number], self.book.settings_for)
            self.partition = replace(self.partition, tenants=tenants)

    def _transformed(self, journal: JournalRecord, asked: DecodedBatch) -> tuple[DecodedBatch, list[str]]:
        """What this setting is asked: the tenants wanted, without the experts left out, labels at their new times."""
        wanted, without = self._tenants, set(self.change.without)
        requests = [one for one in asked.requests if not wanted or one[1].tenant in wanted]
        feedback = [one for one in asked.feedback if not wanted or one[1].tenant in wanted]
        undecidable: list[str] = []
        if without:
            kept = []
            for raw, event, key in requests:
                said = {expert: label for expert, label in event.predictions.items() if expert not in without}
                if said:
                    kept.append((raw, msgspec.structs.replace(event, advice=Advice.of(event.group, said)), key))
                else:
                    undecidable.append(event.tenant)
            requests = kept
        asked = replace(asked, requests=requests, feedback=feedback, refused=[], garbage=0)
        return (self.retimed(journal, asked) if self.retimed else asked), undecidable
