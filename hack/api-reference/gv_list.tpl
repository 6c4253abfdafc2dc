{{- define "gvList" -}}
# API reference

A field is optional if it is not marked as required. Empty texts, and most empty objects, are refused. [Labels and annotations](#labels-annotations-taints-and-finalizers)
are at the end. `kubectl explain` also has what Poolboot records for itself, such as `poolbootconfig.status.boot`.
{{ range . }}
## {{ .GroupVersionString }}

{{ range .SortedTypes }}{{ template "type" . }}{{ end }}
{{- end }}
{{- end -}}
