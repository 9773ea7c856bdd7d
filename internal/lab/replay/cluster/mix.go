package cluster

import "time"

// Class is a sort of requests with goals of their own.
type Class struct {
	Name string
	TTFT time.Duration // from the arrival of a request until its first token
	TPOT time.Duration // mean time from token to token
}

// Mix gives classes and tenants to the requests of a trace. All requests of a session have the same ones. A
// nil Mix gives none.
type Mix struct {
	Classes []Class   // each has as many sessions as every other
	Tenants []float64 // the shares of sessions that the tenants send; in sum 1
}

// Class returns the class of a session of the trace; nil without classes.
func (m *Mix) Class(session int) *Class {
	if m == nil || len(m.Classes) == 0 {
		return nil
	}
	return &m.Classes[int(drawn(session, 1)*float64(len(m.Classes)))]
}

// Tenant returns the number of the tenant that a session belongs to, from 0.
func (m *Mix) Tenant(session int) int {
	if m == nil {
		return 0
	}
	at := drawn(session, 2)
	for i, share := range m.Tenants {
		if at -= share; at < 0 {
			return i
		}
	}
	return max(0, len(m.Tenants)-1)
}

// drawn returns a number from 0 to below 1, the same in each play.
func drawn(session int, of uint64) float64 {
	x := uint64(session)*0x9e3779b97f4a7c15 + of*0xbf58476d1ce4e5b9
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}
