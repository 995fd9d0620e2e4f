{{- /* The configuration, as YAML: that of the mode, key by key under the values. */}}
{{- define "vllm-watch.config" -}}
{{- $config := .Files.Get (printf "files/%s.yaml" .Values.mode) | fromYaml }}
{{- if .Values.tls.enabled }}{{ $_ := set $config "web_config" "/etc/vllm-watch-secret/web.yaml" }}{{ end }}
{{- with .Values.httpRoute }}{{ if .enabled }}{{ $_ := set $config "external_url" (print "https://" .host) }}{{ end }}{{ end }}
{{- with .Values.ingress }}{{ if .enabled }}{{ $_ := set $config "external_url" (print (ternary "https://" "http://" (ne .tlsSecretName "")) .host) }}{{ end }}{{ end }}
{{- range $key, $value := .Values.config }}
{{- if kindIs "invalid" $value }}{{ $_ := unset $config $key }}{{ else }}{{ $_ := set $config $key $value }}{{ end }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- define "vllm-watch.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The namespaces whose pods are discovered, as JSON: none, ours, some, or "*" for all. */}}
{{- define "vllm-watch.watched" -}}
{{- $found := dict }}
{{- $config := include "vllm-watch.config" . | fromYaml }}
{{- range ($config.discovery | default dict).kubernetes }}
{{- range .namespaces | default (list $.Release.Namespace) }}{{ $_ := set $found . true }}{{ end }}
{{- end }}
{{- keys $found | sortAlpha | toJson }}
{{- end }}

{{- /* What the configuration needs of the API server, as JSON: NAME/NAMESPACE → rules. */}}
{{- define "vllm-watch.roles" -}}
{{- $roles := dict }}
{{- $own := list .Release.Namespace }}
{{- $config := include "vllm-watch.config" . | fromYaml }}
{{- $watched := include "vllm-watch.watched" . | fromJsonArray }}
{{- $get := dict "apiGroups" (list "") "resources" (list "pods") "verbs" (list "get") }}
{{- range $watched }}
{{- $_ := set $roles (print "discovery/" .) (list (dict "apiGroups" (list "") "resources" (list "pods") "verbs" (list "list" "watch"))) }}
{{- end }}
{{- range ($config.hooks | default dict).kubernetes }}
{{- $hook := . }}
{{- range ternary (list .namespace) ($watched | default $own) (ne (.namespace | default "") "") }}
{{- if eq ($hook.action | default "evict") "evict" }}
{{- $_ := set $roles (print "evict/" .) (list $get (dict "apiGroups" (list "") "resources" (list "pods/eviction") "verbs" (list "create"))) }}
{{- else }}
{{- $workload := splitList "/" $hook.workload }}
{{- $group := ternary "leaderworkerset.x-k8s.io" "apps" (eq (first $workload) "leaderworkerset") }}
{{- $rule := dict "apiGroups" (list $group) "resources" (list (print (first $workload) "s")) "resourceNames" (list (last $workload)) "verbs" (list "get" "patch") }}
{{- $_ := set $roles (print "rollout/" .) (append (get $roles (print "rollout/" .) | default (list $get)) $rule) }}
{{- end }}
{{- end }}
{{- end }}
{{- if ($config.notifications | default dict).kubernetes }}
{{- range $watched | default $own }}
{{- $_ := set $roles (print "events/" .) (list $get (dict "apiGroups" (list "") "resources" (list "events") "verbs" (list "create"))) }}
{{- end }}
{{- end }}
{{- with ($config.restart | default dict).lock }}
{{- if eq (.kind | default "none") "lease" }}
{{- $create := dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "verbs" (list "create") }}
{{- $renew := dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "resourceNames" (list (.name | default "vllm-watch")) "verbs" (list "get" "update") }}
{{- $_ := set $roles (print "lock/" (.namespace | default (first $own))) (list $create $renew) }}
{{- end }}
{{- end }}
{{- toJson $roles }}
{{- end }}

{{- /* Alertmanager's matchers as those of an AlertmanagerConfig, as JSON. */}}
{{- define "vllm-watch.matchers" -}}
{{- $found := list }}
{{- range . }}
{{- $name := regexFind "^[a-z_]+" . }}
{{- $type := regexFind "^(=~|!~|!=|=)" (trimPrefix $name .) }}
{{- $found = append $found (dict "name" $name "matchType" $type "value" (trimPrefix (print $name $type) . | trimAll "\"")) }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{- define "vllm-watch.labels" -}}
{{- dict "app.kubernetes.io/name" "vllm-watch" | merge (deepCopy .Values.monitoring.labels) | toJson }}
{{- end }}
