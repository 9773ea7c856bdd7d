package orchestrator

import (
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
)

// modelOr is the model that a request names, or else the only one that the decode replicas serve: an engine
// answers a request that names none with its own. Where there are several, one would be as wrong as the
// other.
func (q *request) modelOr(named string) (string, *failure) {
	if named != "" {
		return named, nil
	}
	only := ""
	for _, r := range q.fleet.Endpoints() {
		switch own := r.Member.Facts.Model; {
		case r.Member.Role != replica.Decode || own == only:
		case only != "":
			return "",
				badRequest(&openai.BadRequest{Message: "Name a model: this router serves several.", Param: "model"})
		default:
			only = own
		}
	}
	return only, nil
}
