package turns

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Each answer of a queue equals that of a walk over the list of its prompts, after any arrivals, departures
// and moves.
func TestAQueueIsAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		var list []*Prompt
		now, ended := time.Unix(1000, 0), time.Time{}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Second)
			if len(list) == 0 || rapid.IntRange(0, 2).Draw(t, "enters") == 0 {
				x := &Prompt{
					ID: uint64(i), On: rapid.Bool().Draw(t, "on"), Due: rapid.Int64Range(0, 9).Draw(t, "due"),
					Predicted: time.Duration(rapid.IntRange(0, 9).Draw(t, "predicted")),
				}
				q.Enter(x, now)
				list = append(list, x)
				checkQueue(t, &q, list, ended)
				continue
			}
			at := rapid.IntRange(0, len(list)-1).Draw(t, "which")
			if at == 0 {
				ended = now
			}
			switch x := list[at]; rapid.IntRange(0, 2).Draw(t, "does") {
			case 0:
				left := time.Duration(rapid.IntRange(0, 9).Draw(t, "left"))
				q.Progress(x, left, rapid.Int64Range(0, 9).Draw(t, "due"), now)
			case 1:
				if x.Upto++; at == 0 {
					ended = q.EndedAt()
				}
			default:
				q.Exit(x, now)
				list = slices.Delete(list, at, at+1)
				if q.LeftAt() != now {
					t.Fatalf("a prompt left at %v, want %v", q.LeftAt(), now)
				}
			}
			checkQueue(t, &q, list, ended)
		}
	})
}

func checkQueue(t *rapid.T, q *Queue, list []*Prompt, ended time.Time) {
	var all []*Prompt
	for x := q.Head(); x != nil; x = x.next {
		all = append(all, x)
	}
	if !slices.Equal(all, list) || q.Empty() != (len(list) == 0) || q.EndedAt() != ended {
		t.Fatalf("%d prompts, the head ended at %v; want %d and %v", len(all), q.EndedAt(), len(list), ended)
	}
	const due = 4
	var work, pieces, later time.Duration
	n, behind := 0, 0
	for _, x := range list {
		work += x.Predicted
		if x.On {
			pieces += x.Predicted
			n++
		}
		if x.On && x.Due > due {
			later += x.Predicted
			behind++
		}
		beside := slices.ContainsFunc(list, func(o *Prompt) bool { return o != x && (!o.On || o.Upto > 0) })
		if q.Beside(x) != beside {
			t.Fatalf("the engine has another prompt: %v, want %v", q.Beside(x), beside)
		}
	}
	gotN, gotPieces := q.Pieces()
	gotBehind, gotLater := q.After(due)
	if q.Work() != work || gotN != n || gotPieces != pieces || gotBehind != behind || gotLater != later {
		t.Fatalf("%v of work, %d of %v in pieces, %d of %v later; want %v, %d of %v, %d of %v",
			q.Work(), gotN, gotPieces, gotBehind, gotLater, work, n, pieces, behind, later)
	}
}
