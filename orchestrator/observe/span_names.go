package observe

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// These are the names of everything on a span. If OpenTelemetry has a convention, the span uses its name and
// meaning; 1.41 is the newest version of the conventions that includes generative AI. Tandem's own names
// begin with tandem.
//
// No attribute has a prompt, a token id or a part of an answer.
const (
	AttrID          = attribute.Key("tandem.id")
	AttrKey         = attribute.Key("tandem.key")     // name of the client's key
	AttrSession     = attribute.Key("tandem.session") // a part of the hash of the session's id
	AttrClass       = attribute.Key("tandem.class")
	AttrMode        = attribute.Key("tandem.mode")
	AttrTTFT        = attribute.Key("tandem.ttft_ms")
	AttrOutcome     = attribute.Key("tandem.outcome")
	AttrFailedPhase = attribute.Key("tandem.failed_phase")

	AttrLeg          = attribute.Key("tandem.leg")
	AttrReplica      = attribute.Key("tandem.replica")
	AttrCachedTokens = attribute.Key("tandem.cached_tokens")
	AttrTokens       = attribute.Key("tandem.tokens")
	AttrTokensSource = attribute.Key("tandem.tokens.source")
	AttrTokensCount  = attribute.Key("tandem.tokens.count")

	AttrPrefill       = attribute.Key("tandem.prefill")
	AttrDecode        = attribute.Key("tandem.decode")
	AttrReason        = attribute.Key("tandem.reason")
	AttrMatched       = attribute.Key("tandem.matched_tokens")
	AttrMatchGuessed  = attribute.Key("tandem.match_guessed")
	AttrPredictedTTFT = attribute.Key("tandem.predicted_ttft_ms")
	AttrHeld          = attribute.Key("tandem.held_tokens")
	AttrPlansCompared = attribute.Key("tandem.plans_compared")
	AttrBlind         = attribute.Key("tandem.blind_replicas")
	AttrTruncated     = attribute.Key("tandem.truncated_replicas")
	AttrTerm          = "tandem.term." // with the term's name

	AttrAvailable = attribute.Key("tandem.available_tokens")
	AttrCaptured  = attribute.Key("tandem.captured_tokens")
	AttrDelivered = attribute.Key("tandem.delivered_tokens")
	AttrWhole     = attribute.Key("tandem.whole")
)

// Attributes that OpenTelemetry names.
const (
	AttrMethod    = semconv.HTTPRequestMethodKey
	AttrRoute     = semconv.HTTPRouteKey
	AttrStatus    = semconv.HTTPResponseStatusCodeKey
	AttrPath      = semconv.URLPathKey
	AttrScheme    = semconv.URLSchemeKey
	AttrVersion   = semconv.NetworkProtocolVersionKey
	AttrUserAgent = semconv.UserAgentOriginalKey
	AttrErrorType = semconv.ErrorTypeKey
	AttrAddress   = semconv.ServerAddressKey
	AttrPort      = semconv.ServerPortKey

	AttrOperation    = semconv.GenAIOperationNameKey
	AttrProvider     = semconv.GenAIProviderNameKey
	AttrModel        = semconv.GenAIRequestModelKey
	AttrStream       = semconv.GenAIRequestStreamKey
	AttrMaxTokens    = semconv.GenAIRequestMaxTokensKey
	AttrChoices      = semconv.GenAIRequestChoiceCountKey
	AttrSeed         = semconv.GenAIRequestSeedKey
	AttrTopK         = semconv.GenAIRequestTopKKey
	AttrTopP         = semconv.GenAIRequestTopPKey
	AttrTemperature  = semconv.GenAIRequestTemperatureKey
	AttrFrequency    = semconv.GenAIRequestFrequencyPenaltyKey
	AttrPresence     = semconv.GenAIRequestPresencePenaltyKey
	AttrStop         = semconv.GenAIRequestStopSequencesKey
	AttrAnswerID     = semconv.GenAIResponseIDKey
	AttrAnswerModel  = semconv.GenAIResponseModelKey
	AttrFinish       = semconv.GenAIResponseFinishReasonsKey
	AttrInputTokens  = semconv.GenAIUsageInputTokensKey
	AttrCacheRead    = semconv.GenAIUsageCacheReadInputTokensKey
	AttrOutputTokens = semconv.GenAIUsageOutputTokensKey
)

// provider is vLLM's name among the providers of models.
const provider = "vllm"

// operationPrefill is the operation of a leg without an answer, so that no sum adds its tokens to a
// request's.
const operationPrefill = "prefill"

// operation returns what a request to a path asks of a model; "" if the conventions have no name for it.
func operation(path string) string {
	switch path {
	case "/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/chat/completions/batch":
		return semconv.GenAIOperationNameChat.Value.AsString()
	case "/v1/completions", "/inference/v1/generate":
		return semconv.GenAIOperationNameTextCompletion.Value.AsString()
	case "/v1/embeddings":
		return semconv.GenAIOperationNameEmbeddings.Value.AsString()
	}
	return ""
}
