package kvevents

// PublisherOptions say how a [Publisher] publishes; the zero value of all but Endpoint is right.
type PublisherOptions struct {
	Context      *Context // ZMQ context to share; nil: one of its own
	Endpoint     string   // to bind the PUB socket to; port 0 picks one: "tcp://127.0.0.1:0"
	Replay       string   // to bind the replay ROUTER to, "" for none
	Topic        string
	Form         Form
	ReplayFrames int // 4 (vLLM 0.26 and later) or 3; 0 means 4
	BufferSteps  int // batches kept for replay, default 10,000 as in vLLM
	HWM          int // high-water mark of the PUB socket, default 100,000 as in vLLM
}

// Publisher publishes batches like vLLM's ZmqEventPublisher.
type Publisher struct{ o PublisherOptions }

// NewPublisher binds and starts serving.
func NewPublisher(o PublisherOptions) (*Publisher, error) { return &Publisher{o: o}, nil }

// Publish sends b under the next sequence number. It never waits for a subscriber.
func (p *Publisher) Publish(b *EncodeBatch) {}

// Restart does what a restart of the engine does to the stream: sequence from 0, replay buffer empty.
func (p *Publisher) Restart() {}

// Drop makes the next n batches miss their live send: they take a sequence number and go to the replay buffer only.
func (p *Publisher) Drop(n int) {}

// Pause holds live sends and replays back until Resume.
func (p *Publisher) Pause() {}

// Resume sends what was held back and goes on.
func (p *Publisher) Resume() {}

// Endpoints returns the bound addresses with real ports; a wildcard host stays as it is. Replay is "" without one.
func (p *Publisher) Endpoints() (endpoint, replay string) { return "", "" }

// Close stops serving and closes the sockets. A second call does nothing.
func (p *Publisher) Close() {}
