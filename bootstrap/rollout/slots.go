package rollout

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

const (
	// SlotsPause is how long no host gets a slot after the slots were built from the Nodes. It is longer than the
	// writes take of a manager that still has the slots which were lost.
	SlotsPause = 15 * time.Second
	// MaxSlots is how many slots a pool has at most: what the API allows.
	MaxSlots = 5000
)

// SlotOf returns the slot of a host by the name of its PoolbootConfig, or nil.
func SlotOf(slots []poolv1.UpdateSlot, host string) *poolv1.UpdateSlot {
	if i := slices.IndexFunc(slots, func(s poolv1.UpdateSlot) bool { return s.Host == host }); i >= 0 {
		return &slots[i]
	}
	return nil
}

// HasSlot reports whether the Node of the host has the ID of a slot: the host was told what the slot is for.
func (h *Host) HasSlot(id string) bool {
	return h.Node != nil && id != "" && h.Node.Annotations[agentv1.SlotAnnotation] == id
}

// IsDoneWith reports whether the host was told what a slot is for, is done with it, and the manager has ended the
// update. It is never true too early, however old the objects of the host are: nobody else gets the same ID.
func (h *Host) IsDoneWith(slot string) bool {
	return h.HasSlot(slot) && h.Told() != "" && h.Progress() == Done && !h.HasBegun() && !IsCordonedByUpdate(h.Node)
}

// lostSlot returns the slot that a host must have although the list of the pool has none for it, or false. What shows
// that was written by a manager: a host alone gets no slot by what it reports.
func (h *Host) lostSlot() (slot poolv1.UpdateSlot, ok bool) {
	record := &h.Config.Status.Update
	switch {
	case record.Slot != "" && !h.IsDoneWith(record.Slot):
		return poolv1.UpdateSlot{ID: record.Slot, Host: h.Name(), Revision: record.DesiredRevision}, true
	case h.Node == nil:
		return slot, false
	case h.HasBegun(), IsCordonedByUpdate(h.Node), h.Node.Annotations[agentv1.SlotAnnotation] != "" && h.Progress() == Failed:
		slot = poolv1.UpdateSlot{ID: h.Node.Annotations[agentv1.SlotAnnotation], Host: h.Name(), Revision: h.Told()}
		if n := len(slot.ID); n == 0 || n > 64 {
			slot.ID = NewSlotID()
		}
		return slot, true
	}
	return slot, false
}

// NewSlotID returns the ID of a new slot.
func NewSlotID() string { return string(uuid.NewUUID()) }

// KeepSlots returns the slots that stay taken, with those that hosts of the pool must have although the list has none
// for them. A slot is free once its host is done with it, or has left the pool.
func KeepSlots(slots []poolv1.UpdateSlot, hosts []*Host, left sets.Set[string]) (kept []poolv1.UpdateSlot) {
	named := make(map[string]*Host, len(hosts))
	for _, h := range hosts {
		named[h.Name()] = h
	}
	has := sets.New[string]()
	for _, slot := range slots {
		if has.Has(slot.Host) { // somebody has edited the list
			continue
		}
		if h := named[slot.Host]; h != nil && h.IsDoneWith(slot.ID) || h == nil && left.Has(slot.Host) {
			continue
		}
		has.Insert(slot.Host)
		kept = append(kept, slot)
	}
	for _, h := range hosts {
		if has.Has(h.Name()) {
			continue
		}
		if slot, ok := h.lostSlot(); ok {
			kept = append(kept, slot)
		}
	}
	return kept[:min(len(kept), MaxSlots)]
}

// MaxSkew is how far the clocks of two managers can be apart.
const MaxSkew = time.Minute

// SlotsOpenIn returns in which time hosts get slots, and false if the slots of a pool must be built from its hosts and
// their Nodes before.
func SlotsOpenIn(p *poolv1.MachineConfigPool, now time.Time) (wait time.Duration, isBuilt bool) {
	open := p.Status.SlotsOpenTime
	if open == nil {
		return 0, false
	}
	wait = open.Sub(now)
	return max(wait, 0), wait <= SlotsPause+MaxSkew
}
