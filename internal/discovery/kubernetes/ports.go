package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/config"
)

// The annotation with the ports at which a pod serves now, such as "8000,8001": one for each data-parallel
// rank (llm-d-router, pkg/epp/util/pod). The routing sidecar's port counts, where there is one.
const (
	activePorts       = "llm-d.ai/active-ports"
	formerActivePorts = "inference.networking.k8s.io/active-ports"
)

// rank is one engine of a pod.
type rank struct {
	number, port int
	suffix       string // of its name; "" for the only one
}

// target is the port of the InferencePool for a rank, 0 if the InferencePool has none.
func (of *poolSpec) target(rank int) int {
	if rank < len(of.targets) {
		return of.targets[rank]
	}
	return 0
}

// ranksOf finds the engines of a pod: rank r is at the port of the pool plus r. The annotation says which
// ranks serve now. The annotation may name the ports of the sidecar, one for each engine in the same order.
// If the annotation cannot be used, the error says why, and the ranks are those of the configuration.
func (p *pod) ranksOf(of *poolSpec) ([]rank, error) {
	base, err := p.portOf(of.port)
	direct := of.port == "" && len(of.targets) > 0 && !slices.Contains(p.sidecars(), of.targets[0])
	if direct { // gateways send requests to the engines themselves
		base, err = int32(of.targets[0]), nil
	}
	if err != nil {
		return nil, err
	}
	numbers, err := p.activeRanks(int(base), of.targets)
	if p.active == nil || err != nil {
		for n := range max(cmp.Or(of.ranks, len(of.targets)), 1) {
			numbers = append(numbers, n)
		}
	} else if of.ranks > 0 {
		numbers = slices.DeleteFunc(numbers, func(n int) bool { return n >= of.ranks })
	}
	var all []rank
	for _, n := range numbers {
		r := rank{number: n, port: int(base) + n}
		if direct {
			r.port = cmp.Or(of.target(n), r.port)
		}
		if of.ranks > 1 || len(numbers) > 1 || n > 0 {
			r.suffix = "-rank-" + strconv.Itoa(n)
		}
		if r.port <= mostPort {
			all = append(all, r)
		}
	}
	return all, err
}

const mostPort = 65535

// activeRanks reads the annotation of a pod whose first engine is at base, in an InferencePool with some
// target ports. Without the annotation there is no rank.
func (p *pod) activeRanks(base int, targets []int) ([]int, error) {
	if p.active == nil || strings.TrimSpace(*p.active) == "" {
		return nil, nil
	}
	var ports []int
	for text := range strings.SplitSeq(*p.active, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > mostPort {
			return nil, fmt.Errorf("its annotation %s is %q: write numbers of ports, such as 8000,8001", activePorts,
				*p.active)
		}
		ports = append(ports, n)
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	numbers := make([]int, len(ports))
	for i, at := range ports {
		numbers[i] = slices.Index(targets, at)
	}
	if !slices.Contains(numbers, -1) {
		return numbers, nil
	}
	least, most := ports[0], ports[len(ports)-1]
	for _, first := range append([]int{base}, p.sidecars()...) {
		if first <= least && most < first+config.MostRanks {
			for i := range ports {
				ports[i] -= first
			}
			return ports, nil
		}
	}
	return nil, fmt.Errorf("its annotation %s is %q, and these are ports of no sidecar and not those from %d "+
		"on; the ports are %s", activePorts, *p.active, base, p.listPorts())
}

// sidecars lists the ports of sidecars, in order.
func (p *pod) sidecars() (ports []int) {
	for _, at := range p.ports {
		if at.sidecar {
			ports = append(ports, int(at.number))
		}
	}
	slices.Sort(ports)
	return ports
}

// portOf finds a port: by number, by its name, or by the name of its container. Without a name it is the
// first port that is not a sidecar's.
func (p *pod) portOf(name string) (int32, error) {
	if n, err := strconv.ParseUint(name, 10, 16); err == nil {
		return int32(n), nil
	}
	for _, fits := range []func(*port) bool{
		func(at *port) bool { return at.name == name && name != "" },
		func(at *port) bool { return at.container == name },
		func(at *port) bool { return name == "" && !at.sidecar },
	} {
		if i := slices.IndexFunc(p.ports, func(at port) bool { return fits(&at) }); i >= 0 {
			return p.ports[i].number, nil
		}
	}
	if name == "" {
		return 0, errors.New("no container declares a port; set port to the number of the engine's port")
	}
	return 0, fmt.Errorf("no port and no container with a port is called %q; the ports are %s; "+
		"set port to one of them, or to a number", name, p.listPorts())
}

func (p *pod) listPorts() string {
	var all []string
	for _, at := range p.ports {
		all = append(all, fmt.Sprintf("%s %d of container %s", cmp.Or(at.name, "unnamed"), at.number, at.container))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}
