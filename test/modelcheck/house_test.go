package modelcheck

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/offer"
	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/tools"
	"nisse.io/nisse/broker/work"
	"nisse.io/nisse/internal/doors"
)

// mutant is a fault that was built in, to see that it is found.
type mutant struct {
	name string
	// from which life on it is looked for: near one that finds it, to be quick.
	from uint64
	// newCallIDs: the runtime asks again under another ID. newWordIDs: so with words for the room.
	newCallIDs, newWordIDs bool
	// logForgets: the runtime's log loses its last record when the process dies. bootForgets: the next process does not look at intents.
	logForgets, bootForgets bool
	// acksFirst: the runtime acknowledges words before they are on disk.
	acksFirst bool
	// deviceForgets: the device loses its table when it dies.
	deviceForgets bool
}

// violation of a property.
type violation string

// house is a world in which the product's own runtime works on one item.
type house struct {
	*world
	rng    *rand.Rand
	trace  []string
	doing  string
	mutant mutant
	room   *room
	rt     *process
	broker []*request
	// made calls that reached the broker, by ID: tool and arguments.
	made  map[string]string
	tools map[string]tools.Tool
	offer *offer.Set
	seen  doors.Snapshot
	// wild is how often the model errs, hard how often people are difficult; both end with the faults.
	wild, hard float64
	// straight: neither ever was.
	straight bool
	deeds    int
	faults   bool
	quiet    int // rounds since the faults have ended
}

// Fatalf makes a house the T of its world.
func (h *house) Fatalf(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }

func newHouse(seed uint64, dir string, m mutant) *house {
	h := &house{rng: rand.New(rand.NewPCG(seed, 0)), mutant: m, made: map[string]string{}, tools: map[string]tools.Tool{}, faults: true}
	h.world = newWorld(h, dir)
	h.cluster.item.Spec.Source.Kind = api.SourceMatrix
	h.cluster.item.Spec.Title = "do it"
	h.cluster.item.Status.State = ""
	h.agent.Status.ActiveWorkItem = "wi"
	h.agent.Spec.People[0].May = append(h.agent.Spec.People[0].May, api.RightInstruct)
	var list []doorclient.Tool
	for _, t := range tools.Of(&h.agent) {
		h.tools[t.Name] = t
		list = append(list, doorclient.Tool{Name: t.Name, Description: t.Description, Schema: t.Schema})
	}
	var err error
	h.offer, err = offer.New(list)
	h.must(err)
	// A third of the runs have a model that errs, a third have difficult people.
	if h.chance(0.33) {
		h.wild = 0.4
	}
	if h.chance(0.33) {
		h.hard = 0.3
	}
	h.straight = h.wild+h.hard == 0
	h.room = &room{h: h, epoch: "e0"}
	h.room.post("do it")
	h.rt = newProcess(h)
	h.look()
	return h
}

func (h *house) chance(p float64) bool { return h.rng.Float64() < p }

// mishap tells whether something goes wrong that can, while things do.
func (h *house) mishap(p float64) bool { return h.faults && h.chance(p) }

func (h *house) note(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf(format, args...))
}

func (h *house) next() int { h.serial++; return h.serial }

// look takes the snapshot that the work stream brings next. It may be old by then.
func (h *house) look() {
	o := work.Objects{Agent: &h.agent, Items: []api.WorkItem{*h.cluster.item.DeepCopy()}, Plans: h.cluster.plans, Gates: h.cluster.gates, Devices: []api.Device{h.device}}
	for _, j := range h.cluster.jobs {
		o.Jobs = append(o.Jobs, j)
	}
	h.seen = work.Snapshot(o)
}

// action is something that may happen, with how often it does.
type action struct {
	name   string
	weight int
	do     func()
}

func (h *house) actions() []action {
	return []action{
		{"the broker shows the work", 8, h.look},
		{"the runtime sees the work", 10, h.rt.observe},
		{"the runtime goes on", 14, h.rt.advance},
		{"the runtime's effect", 14, h.rt.fly},
		{"the runtime listens", 8, h.rt.listen},
		{"the runtime speaks", 8, h.rt.say},
		{"the runtime starts", 6, h.rt.start},
		{"the runtime dies", 1, h.rt.die},
		{"an answer is lost", 2, h.rt.loseAnswer},
		{"the broker works", 16, h.serveOne},
		{"the broker resolves", 3, h.resolve},
		{"the broker dies", 1, func() { h.broker = nil; h.rt.attempt = nil }},
		{"the network delivers", 12, h.deliverOne},
		{"the network loses", 2, h.loseOne},
		{"the device dies", 1, h.deviceDies},
		{"the device dies at its next write", 1, h.deviceDiesWriting},
		{"the manager looks after gates", 8, h.keepGates},
		{"the manager decides", 8, h.decide},
		{"the manager moves the item", 10, h.move},
		{"a person acts", 8, h.person},
		{"a person says stop or more", 1, h.difficult},
		{"the gateway tells the cluster", 6, h.room.tellCluster},
		{"the gateway is restored", 1, h.room.restore},
		{"time passes", 4, h.time},
	}
}

// live lets anything happen in any order, n times, and then everything in good order until the work has ended.
func (h *house) live(n int) {
	all := h.actions()
	total := 0
	for _, a := range all {
		total += a.weight
	}
	for range n {
		k := h.rng.IntN(total)
		for _, a := range all {
			if k -= a.weight; k < 0 {
				h.doing = a.name // told if anything comes of it
				a.do()
				break
			}
		}
		h.check()
	}
	h.doing = "the world is quiet"
	h.faults, h.wild, h.hard = false, 0, 0
	for h.quiet = 1; !h.over(); h.quiet++ {
		if h.quiet > 400 {
			h.note("item %+v", h.cluster.item.Status)
			h.note("unsettled %v, packets %d, letters %d, flight %+v, the runtime knows of the end: %v", h.unsettled(), len(h.net), len(h.room.letters), h.rt.flight, h.rt.knows("ended/wi"))
			h.Fatalf("the work does not end: the item is %s", h.cluster.item.Status.State)
		}
		h.round()
		h.check()
	}
}

// round lets everybody do what they do, without a fault.
func (h *house) round() {
	h.rt.start()
	h.look()
	for _, f := range []func(){h.rt.observe, h.rt.listen, h.rt.listen, h.rt.advance, h.rt.fly, h.rt.say, h.rt.say, h.serveAll, h.deliverAll, h.serveAll, h.rt.fly,
		h.resolve, h.deliverAll, h.keepGates, h.decide, h.move, h.person, h.room.tellCluster, h.time} {
		f()
	}
}

// over tells whether the item has ended, everything was said, heard and answered, and the runtime knows.
func (h *house) over() bool {
	return h.cluster.item.Status.State == api.WorkItemClosed && h.rt.idle() && len(h.room.letters) == 0 && len(h.net) == 0 && !h.unsettled()
}

func (h *house) unsettled() bool {
	for _, j := range h.cluster.jobs {
		if j.Status.State == "" {
			return true
		}
	}
	return false
}

func (h *house) time() {
	d := durations[0]
	if h.faults {
		d = durations[h.rng.IntN(len(durations))]
	}
	h.now = h.now.Add(d)
}

func stamp(h *house) metav1.Time { return metav1.NewTime(h.now) }

// run one life by its seed. It returns the violation, or nothing.
func run(seed uint64, dir string, m mutant, length int) (h *house, found violation) {
	h = newHouse(seed, dir, m)
	defer func() {
		h.rt.close()
		_ = h.daemon.Close()
		_ = os.RemoveAll(dir)
	}()
	defer func() {
		if r := recover(); r != nil {
			v, ok := r.(violation)
			if !ok {
				panic(r)
			}
			found = v
		}
	}()
	h.live(length)
	h.judgeAll()
	for _, n := range h.runs() {
		h.deeds += n
	}
	return h, ""
}

func (h *house) story() string {
	from := max(0, len(h.trace)-400)
	return strings.Join(h.trace[from:], "\n  ")
}
