package replica

// OtherRequests counts the requests on a replica that are not ours.
//
// A report and our own count never are of quite the same moment: what only one report says may be a request
// of ours that has just ended. So Count is the smaller of what the last two reports say.
type OtherRequests struct {
	Count int
	last  int
	heard bool
}

// Note takes in how many requests a report has beyond ours. Below zero counts as none.
func (o *OtherRequests) Note(seen int) {
	seen = max(0, seen)
	o.Count = seen
	if o.heard {
		o.Count = min(seen, o.last)
	}
	o.last, o.heard = seen, true
}
