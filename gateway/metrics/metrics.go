// Package metrics holds what the gateway counts. No label is made of what a person can write.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	// SyncedAt is when an account last heard of its homeserver; the sync lag is the time since.
	SyncedAt = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nisse_gateway_synced_timestamp_seconds", Help: "When the account's last sync was stored, in Unix seconds.",
	}, []string{"account"})
	// EventDelay is how long after the homeserver accepted it a message was stored here.
	EventDelay = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "nisse_gateway_event_delay_seconds", Help: "Time from a message's acceptance by the homeserver to its row in the inbox.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600},
	})
	// Routed counts messages by what became of them.
	Routed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nisse_gateway_routed_total", Help: "Messages taken in, by what became of them.",
	}, []string{"kind"})
	// Reconciled counts sends that were found to have succeeded before, by where.
	Reconciled = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nisse_gateway_resend_reconciliations_total", Help: "Messages that were found in the room instead of being sent again.",
	})
	// RateLimited counts 429 answers of the homeserver.
	RateLimited = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nisse_gateway_rate_limited_total", Help: "Answers 429 of the homeserver.",
	})
	// Refused counts messages that the homeserver will not take, by what they are.
	Refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nisse_gateway_messages_refused_total", Help: "Messages that the homeserver refused, by what they are.",
	}, []string{"kind"})
	// OverBudget counts what was not taken from agents that had a day's worth stored.
	OverBudget = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nisse_gateway_over_budget_total", Help: "Messages of agents that were not taken because the day's budget was spent.",
	})
	// StoreFull counts what could not be stored for want of room.
	StoreFull = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nisse_gateway_store_full_total", Help: "Transactions that failed because the store's volume is full.",
	})
	// GapEvents counts events that were fetched because a sync left them out.
	GapEvents = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nisse_gateway_gap_events_total", Help: "Events fetched from history because a sync left them out.",
	})
	// ConnectionsRefused counts connections that were closed at once, by the port they came to.
	ConnectionsRefused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nisse_gateway_connections_refused_total", Help: "Connections closed at once because their address had as many as it may.",
	}, []string{"port"})
	// Refusals counts decisions that did not count, by reason.
	Refusals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nisse_gateway_refusals_total", Help: "Decisions from rooms that did not count, by the reason the manager gave.",
	}, []string{"reason"})
)

// Register all of it, with the depths of inbox and outbox and the bytes of the store as the store tells them.
func Register(r prometheus.Registerer, depths func() (inbox, outbox int), space func() (files, reusable, free int64)) error {
	storeBytes := func(of string, value func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "nisse_gateway_store_bytes", Help: "Bytes of the store: its files, what of them is used again before they grow, and what its volume has left.",
			ConstLabels: prometheus.Labels{"of": of},
		}, func() float64 { return float64(value()) })
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	for _, c := range []prometheus.Collector{
		SyncedAt, EventDelay, Routed, Reconciled, RateLimited, Refused, OverBudget, StoreFull, GapEvents, Refusals, ConnectionsRefused,
		gauge("nisse_gateway_inbox_depth", "Messages whose effect is not done.", func() float64 { n, _ := depths(); return float64(n) }),
		gauge("nisse_gateway_outbox_depth", "Messages that wait to be sent.", func() float64 { _, n := depths(); return float64(n) }),
		storeBytes("files", func() int64 { n, _, _ := space(); return n }),
		storeBytes("reusable", func() int64 { _, n, _ := space(); return n }),
		storeBytes("volume_free", func() int64 { _, _, n := space(); return n }),
	} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
