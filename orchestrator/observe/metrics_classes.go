package observe

// ClassMetrics describe the outcome of requests by class. There are no series without classes.
type ClassMetrics struct {
	Ended *Counters   // class, outcome
	First *Histograms // class
}

func newClassMetrics(f *Families) ClassMetrics {
	return ClassMetrics{
		Ended: f.Counters("tandem_class_requests_total",
			"Requests that ended, by class and outcome. A class that is removed loses its series.", "class",
			"outcome"),
		First: f.Histograms("tandem_class_time_to_first_token_seconds",
			"TTFT by class: seconds from request in to first content out, of streams that ended well.",
			secondsBuckets, "class"),
	}
}
