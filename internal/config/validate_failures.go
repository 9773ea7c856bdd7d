package config

import (
	"fmt"
	"math"
	"time"
)

func (r *Retry) check(ck *checker) {
	ck.between("retry.attempts", r.Attempts, 1, 10)
	ck.share("retry.share", r.Share)
	ck.between("retry.min", r.Min, 0, math.MaxInt32)
	ck.oneOf("retry.continue", r.Continue, ContinueGreedy, ContinueAlways, ContinueOff)
}

func (h *Health) check(ck *checker) {
	ck.between("health.failures", h.Failures, 1, 1000)
	e := h.Ejection
	ck.between("health.ejection.failures", e.Failures, 0, 1000)
	ck.share("health.ejection.share", e.Share)
	ck.longer("health.ejection.base", e.Base, 100*time.Millisecond)
	if e.Max < e.Base {
		ck.add("health.ejection.max", fmt.Sprintf("%v is shorter than health.ejection.base %v", e.Max, e.Base),
			"make it longer")
	}
}
