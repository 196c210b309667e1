"""Probes and measurement events as health.sock sends them: to and from the types of the domain."""

from dataclasses import asdict

from appliance.domain.measurements import MeasurementEvent, Probe
from appliance.protocol.health_socket import MeasuredEvent, StoredProbeEvent
from appliance.protocol.json_dataclasses import from_json


def probe_event(probe: Probe) -> StoredProbeEvent:
    """Return the event that tells one probe."""
    return StoredProbeEvent(asdict(probe))


def probe_in(event: StoredProbeEvent) -> Probe:
    """Return the probe that an event tells. Raises `JsonValueError`."""
    return from_json(Probe, event.probe)


def measured_event(event: MeasurementEvent) -> MeasuredEvent:
    """Return the event of the socket that tells a measurement event."""
    return MeasuredEvent(**asdict(event))


def measurement_event_in(event: MeasuredEvent) -> MeasurementEvent:
    """Return the measurement event that an event of the socket tells. Raises `JsonValueError`."""
    return from_json(MeasurementEvent, event.fields())
