package keys

import (
	"cmp"
	"slices"
	"sync"
)

// Usage counts what keys have used. The zero value is empty. It has a row for each key and model, so it does
// not grow with what strangers send. Safe for concurrent use.
type Usage struct {
	mu sync.Mutex // guards by
	by map[usageOf]*Used
}

type usageOf struct{ key, model string }

// Used is what one key has used of one model.
type Used struct {
	Key       string `json:"key"`
	Model     string `json:"model"`
	Requests  int64  `json:"requests"` // prompts that engines answered, wholly or in part
	Prompt    int64  `json:"prompt_tokens"`
	Cached    int64  `json:"cached_tokens"` // a part of Prompt
	Generated int64  `json:"generated_tokens"`
}

// Add counts what is in use.
func (u *Usage) Add(use Used) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by == nil {
		u.by = map[usageOf]*Used{}
	}
	of := usageOf{use.Key, use.Model}
	sum := u.by[of]
	if sum == nil {
		sum = &Used{Key: use.Key, Model: use.Model}
		u.by[of] = sum
	}
	sum.Requests += use.Requests
	sum.Prompt += use.Prompt
	sum.Cached += use.Cached
	sum.Generated += use.Generated
}

// Take returns the rows by key and model, and forgets them.
func (u *Usage) Take() []Used {
	u.mu.Lock()
	defer u.mu.Unlock()
	rows := make([]Used, 0, len(u.by))
	for _, used := range u.by {
		rows = append(rows, *used)
	}
	u.by = nil
	slices.SortFunc(rows, func(a, b Used) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Model, b.Model))
	})
	return rows
}
