package enginesim

// Cost is the time of a step.
type Cost struct {
	T0, A, B   float64 // prefill: seconds, seconds a token, seconds a token squared
	D0, D1, D2 float64 // decode: seconds, seconds a sequence, seconds a token of KV
	Host       float64 // seconds a step
	Speed      float64 // 2 is twice as fast; 0 is 1
}

// Preset is the cost of a model on a GPU.
func Preset(name string) (Cost, bool) { return Cost{}, false }
