package orchestrator

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// The names of everything on a span. What OpenTelemetry has a convention for has its name and its meaning;
// 1.41 is the newest version of the conventions that has those of generative AI. What is Tandem's own begins
// with tandem.
//
// No attribute holds a prompt, a token id or a part of an answer.
const (
	attrID          = attribute.Key("tandem.id")
	attrMode        = attribute.Key("tandem.mode")
	attrTTFT        = attribute.Key("tandem.ttft_ms")
	attrOutcome     = attribute.Key("tandem.outcome")
	attrFailedPhase = attribute.Key("tandem.failed_phase")

	attrLeg          = attribute.Key("tandem.leg")
	attrReplica      = attribute.Key("tandem.replica")
	attrCachedTokens = attribute.Key("tandem.cached_tokens")
	attrTokens       = attribute.Key("tandem.tokens")
	attrTokensSource = attribute.Key("tandem.tokens.source")
	attrTokensCount  = attribute.Key("tandem.tokens.count")

	attrPrefill       = attribute.Key("tandem.prefill")
	attrDecode        = attribute.Key("tandem.decode")
	attrReason        = attribute.Key("tandem.reason")
	attrMatched       = attribute.Key("tandem.matched_tokens")
	attrMatchGuessed  = attribute.Key("tandem.match_guessed")
	attrPredictedTTFT = attribute.Key("tandem.predicted_ttft_ms")
	attrHeld          = attribute.Key("tandem.held_tokens")
	attrPlansCompared = attribute.Key("tandem.plans_compared")
	attrBlind         = attribute.Key("tandem.blind_replicas")
	attrTruncated     = attribute.Key("tandem.truncated_replicas")
	attrTerm          = "tandem.term." // with the term's name

	attrAvailable = attribute.Key("tandem.available_tokens")
	attrCaptured  = attribute.Key("tandem.captured_tokens")
	attrDelivered = attribute.Key("tandem.delivered_tokens")
	attrWhole     = attribute.Key("tandem.whole")
)

// Attributes that OpenTelemetry names.
const (
	attrMethod    = semconv.HTTPRequestMethodKey
	attrRoute     = semconv.HTTPRouteKey
	attrStatus    = semconv.HTTPResponseStatusCodeKey
	attrPath      = semconv.URLPathKey
	attrScheme    = semconv.URLSchemeKey
	attrVersion   = semconv.NetworkProtocolVersionKey
	attrUserAgent = semconv.UserAgentOriginalKey
	attrErrorType = semconv.ErrorTypeKey
	attrAddress   = semconv.ServerAddressKey
	attrPort      = semconv.ServerPortKey

	attrOperation    = semconv.GenAIOperationNameKey
	attrProvider     = semconv.GenAIProviderNameKey
	attrModel        = semconv.GenAIRequestModelKey
	attrStream       = semconv.GenAIRequestStreamKey
	attrMaxTokens    = semconv.GenAIRequestMaxTokensKey
	attrChoices      = semconv.GenAIRequestChoiceCountKey
	attrSeed         = semconv.GenAIRequestSeedKey
	attrTopK         = semconv.GenAIRequestTopKKey
	attrTopP         = semconv.GenAIRequestTopPKey
	attrTemperature  = semconv.GenAIRequestTemperatureKey
	attrFrequency    = semconv.GenAIRequestFrequencyPenaltyKey
	attrPresence     = semconv.GenAIRequestPresencePenaltyKey
	attrStop         = semconv.GenAIRequestStopSequencesKey
	attrAnswerID     = semconv.GenAIResponseIDKey
	attrAnswerModel  = semconv.GenAIResponseModelKey
	attrFinish       = semconv.GenAIResponseFinishReasonsKey
	attrInputTokens  = semconv.GenAIUsageInputTokensKey
	attrCacheRead    = semconv.GenAIUsageCacheReadInputTokensKey
	attrOutputTokens = semconv.GenAIUsageOutputTokensKey
)

// provider is what vLLM is called where providers of models are told apart.
const provider = "vllm"

// operationPrefill is the operation of a leg that makes no answer: nobody adds its tokens to a request's.
const operationPrefill = "prefill"

// operation is what a request to a path asks a model for, "" where the conventions have no name for it.
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
